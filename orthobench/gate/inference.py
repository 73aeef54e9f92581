"""Two samples over seeds, and whether the loss is provably within the allowed one.

A non-inferiority test: "as good" has to be shown, at the level ALPHA, by Welch's t interval of the difference of the
means (B. L. Welch, Biometrika 34, 1947), whose spreads may differ. How probable that is for unchanged code is the
test's power, by the noncentral t distribution.

"Worse" has to be shown, too: by the interval's other end, or by ranks (Wilcoxon, Mann and Whitney, on the baseline's
values less the allowed loss), since one seed that fails to learn makes the interval so wide that it hides the others.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

ALPHA = 0.05
"""How probable it may be to call as good, or worse, what is not; one-sided."""
FEWEST = 3
"""Values that a spread is taken from. Two leave one degree of freedom: Student's t is 6.3 at 95 %, with three 2.9."""
CERTAIN = 0.999
"""Probability with which code that did not change has to be called as good, where the margin is measured."""
RESAMPLES = 4_000

Direction = Literal["min", "max"]


@dataclass(frozen=True)
class Difference:
    """How much worse the mean got (negative: better), and the bounds it does not cross with 1 - ALPHA each."""

    loss: float
    lower: float
    upper: float


def difference(before: Sequence[float], now: Sequence[float], direction: Direction) -> Difference:
    """Welch's interval of the loss; each sample has at least two values."""
    from scipy.stats import t

    sign = 1 if direction == "min" else -1
    loss = sign * (statistics.fmean(now) - statistics.fmean(before))
    shares = [statistics.variance(sample) / len(sample) for sample in (before, now)]
    squared = sum(shares)
    if squared == 0:
        return Difference(loss, loss, loss)
    freedom = _freedom(shares, [len(before), len(now)])
    half_width = float(t.isf(ALPHA, freedom)) * math.sqrt(squared)
    return Difference(loss, loss - half_width, loss + half_width)


def is_worse(before: Sequence[float], now: Sequence[float], direction: Direction, allowed_loss: float) -> bool:
    """Whether values now are worse than those before by more than the allowed loss; three or more of each."""
    from scipy.stats import mannwhitneyu

    if difference(before, now, direction).lower > allowed_loss:
        return True
    sign = 1 if direction == "min" else -1
    limits = [sign * value + allowed_loss for value in before]
    found = mannwhitneyu([sign * value for value in now], limits, alternative="greater", method="exact")
    return bool(found.pvalue <= ALPHA)


def power(allowed_loss: float, deviation: float, n_before: int, n_now: int) -> float:
    """The probability that unchanged code is found as good, if both samples spread by this standard deviation."""
    from scipy.stats import nct, t

    if deviation == 0:
        return 1.0
    shares = [1 / n_before, 1 / n_now]
    freedom = _freedom(shares, [n_before, n_now])
    shift = allowed_loss / (deviation * math.sqrt(sum(shares)))
    if shift > FAR:
        return 1.0
    return float(nct.sf(t.isf(ALPHA, freedom), freedom, shift))


FAR = 30.0
"""Standard errors from which on the noncentral t, whose series no longer converges, is 1 to rounding."""


def measured_margin(values: Sequence[float], n_now: int, direction: Direction) -> float:
    """The smallest loss to allow, if unchanged code is to be found as good with probability CERTAIN.

    By the power, and by drawing checks from the values themselves, since values of training are not normal: a seed now
    and then fails. The greater counts. The deviation of a few values may be too small by chance: for the power it is
    its upper limit at 90 %.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.stats import chi2

    n = len(values)
    deviation = statistics.stdev(values) * math.sqrt((n - 1) / float(chi2.isf(0.9, n - 1)))
    if deviation == 0:
        return 0.0
    far = FAR * deviation * math.sqrt(1 / n + 1 / n_now)
    by_power = float(brentq(lambda margin: power(margin, deviation, n, n_now) - CERTAIN, 0.0, far))
    draws = np.random.default_rng(0).choice(values, (RESAMPLES, n_now))
    bounds = [difference(values, draw, direction).upper for draw in draws.tolist()]
    return max(by_power, float(np.quantile(bounds, CERTAIN)))


def _freedom(shares: Sequence[float], sizes: Sequence[int]) -> float:
    """Welch and Satterthwaite's degrees of freedom, from each sample's share of the squared error and its size."""
    largest = max(shares)  # of their ratio alone: squares of small numbers are zero
    return (sum(shares) / largest) ** 2 / sum(
        (share / largest) ** 2 / (n - 1) for share, n in zip(shares, sizes, strict=True)
    )
