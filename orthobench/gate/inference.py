"""Compare two samples over seeds: a non-inferiority test against an allowed loss.

"As good" needs evidence at the level ALPHA from Welch's t interval of the difference of the means, which allows for
different spreads (B. L. Welch, Biometrika 34, 1947). The power of the test is the probability that unchanged code
passes, according to the noncentral t distribution.

"Worse" needs evidence, too: the other end of the interval, or the rank test of Wilcoxon, Mann and Whitney, which
compares with the baseline's values shifted by the allowed loss. The rank test still decides when one seed that fails to
learn widens the interval.

Losses are also given in standard deviations of the baseline's values. The detection of a loss is the probability that a
check does not pass code with this loss.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from orthobench.metric import Goal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

ALPHA = 0.05
"""The one-sided probability of a wrong verdict "as good" or "worse"."""
FEWEST = 3
"""The smallest number of values for a spread. Student's t at 95 % is 6.3 with two values and 2.9 with three."""
CERTAIN = 0.999
"""The probability that unchanged code passes with a measured margin."""
RESAMPLES = 4_000
DEVIATIONS = 3.0
"""The loss in standard deviations that a check should detect."""
DETECTION = 0.8
"""The smallest acceptable detection of a loss of DEVIATIONS."""
BASELINE_SEEDS = 20, 40, 100
"""The numbers of baseline seeds among which a refused update suggests one."""


@dataclass(frozen=True)
class Difference:
    """The loss of the mean (negative if better), with a lower and an upper bound, each of confidence 1 - ALPHA."""

    loss: float
    lower: float
    upper: float


def difference(before: Sequence[float], now: Sequence[float], direction: Goal) -> Difference:
    """Return Welch's interval of the loss; each sample needs at least two values."""
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


def is_worse(before: Sequence[float], now: Sequence[float], direction: Goal, allowed_loss: float) -> bool:
    """Return whether `now` is worse than `before` by more than the allowed loss; each needs three or more values."""
    from scipy.stats import mannwhitneyu

    if difference(before, now, direction).lower > allowed_loss:
        return True
    sign = 1 if direction == "min" else -1
    limits = [sign * value + allowed_loss for value in before]
    # Exact, because SciPy otherwise takes a normal approximation for tied values,
    # and these samples are too small for it.
    ranks = mannwhitneyu([sign * value for value in now], limits, alternative="greater", method="exact")
    return bool(ranks.pvalue <= ALPHA)


def power(allowed_loss: float, deviation: float, n_before: int, n_now: int, loss: float = 0.0) -> float:
    """Return the probability that code with this loss passes, if both samples have this standard deviation.

    The default loss of 0 stands for unchanged code.
    """
    from scipy.stats import nct, t

    if deviation == 0:
        return float(loss <= allowed_loss)
    shares = [1 / n_before, 1 / n_now]
    freedom = _freedom(shares, [n_before, n_now])
    shift = (allowed_loss - loss) / (deviation * math.sqrt(sum(shares)))
    if abs(shift) > FAR:
        return float(shift > 0)
    return float(nct.sf(t.isf(ALPHA, freedom), freedom, shift))


FAR = 30.0
"""Standard errors beyond which the power is 1 or 0 up to rounding; the series of the noncentral t fails there."""


def detection(values: Sequence[float], n_now: int, allowed_loss: float, deviations: float = DEVIATIONS) -> float:
    """Return the probability that a check of `n_now` seeds does not pass a loss of these standard deviations.

    If all values are equal, every loss beyond the allowed one is detected, and the result is 1.
    """
    deviation = statistics.stdev(values)
    if deviation == 0:
        return 1.0
    return 1 - power(allowed_loss, deviation, len(values), n_now, deviations * deviation)


def seeds_needed(values: Sequence[float], n_now: int, direction: Goal) -> tuple[int, int] | None:
    """Return the numbers of seeds of a baseline and of a check that detect a loss of DEVIATIONS, or None.

    First try more seeds in a check, with the margins that follow from the values. If that is not enough, also try a
    larger baseline, assuming normal values.
    """
    checks = range(n_now, 4 * n_now + 1)
    for n in checks:
        if detection(values, n, measured_margin(values, n, direction)) >= DETECTION:
            return len(values), n
    for measured in BASELINE_SEEDS:
        for n in checks if measured > len(values) else ():
            if 1 - power(_margin_by_power(1.0, measured, n), 1.0, measured, n, DEVIATIONS) >= DETECTION:
                return measured, n
    return None


def measured_margin(values: Sequence[float], n_now: int, direction: Goal) -> float:
    """Return the smallest allowed loss with which unchanged code passes with probability CERTAIN.

    It is the larger of two margins: from the power, and from checks resampled from the values. Resampling is needed
    because training results are not normal: now and then a seed fails to learn. The power uses the 90 % upper limit of
    the standard deviation, because the deviation of a few values may be too small by chance.
    """
    import numpy as np

    deviation = statistics.stdev(values)
    if deviation == 0:
        return 0.0
    by_power = _margin_by_power(deviation, len(values), n_now)
    # A fixed seed, because the same values must always give the same margin.
    draws = np.random.default_rng(0).choice(values, (RESAMPLES, n_now))
    return max(by_power, float(np.quantile(_upper_bounds(values, draws, direction), CERTAIN)))


def _upper_bounds(values: Sequence[float], draws: NDArray[np.float64], direction: Goal) -> NDArray[np.float64]:
    """Return the upper bound of `difference` for each row of draws; the values are not all equal."""
    import numpy as np
    from scipy.stats import t

    sign, n_before, n_now = 1 if direction == "min" else -1, len(values), draws.shape[1]
    losses = sign * (draws.mean(axis=1) - statistics.fmean(values))
    before, now = statistics.variance(values) / n_before, draws.var(axis=1, ddof=1) / n_now
    squared = before + now
    freedom = (squared / before) ** 2 / (1 / (n_before - 1) + (now / before) ** 2 / (n_now - 1))
    bounds: NDArray[np.float64] = losses + t.isf(ALPHA, freedom) * np.sqrt(squared)
    return bounds


def _margin_by_power(deviation: float, n_before: int, n_now: int) -> float:
    """Return the allowed loss that has power CERTAIN at the upper limit of this standard deviation."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    limit = deviation * math.sqrt((n_before - 1) / float(chi2.isf(0.9, n_before - 1)))
    far = FAR * limit * math.sqrt(1 / n_before + 1 / n_now)
    return float(brentq(lambda margin: power(margin, limit, n_before, n_now) - CERTAIN, 0.0, far))


def _freedom(shares: Sequence[float], sizes: Sequence[int]) -> float:
    """Return Welch and Satterthwaite's degrees of freedom from the samples' shares of the squared error and sizes."""
    largest = max(shares)  # square only ratios, because squares of small numbers underflow to zero
    return (sum(shares) / largest) ** 2 / sum(
        (share / largest) ** 2 / (n - 1) for share, n in zip(shares, sizes, strict=True)
    )
