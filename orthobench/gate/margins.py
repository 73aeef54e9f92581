"""What unchanged code can lose by chance, and which losses a check detects.

The power of a check is the probability that unchanged code passes, according to the noncentral t distribution. The
detection of a loss, in standard deviations of the baseline's values, is the probability that code with this loss does
not pass. The detectable loss is the one that most checks call worse. `orthobench.analysis.inference` says when code
passes and when it is worse.
"""

from __future__ import annotations

import functools
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING

from orthobench.analysis.statistics import LEVEL, welch_freedom
from orthobench.metric import Goal

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

CERTAIN = 0.999
"""The probability that unchanged code passes with a measured margin."""
RESAMPLES = 4_000
DEVIATIONS = 3.0
"""The loss in standard deviations that a check should detect."""
DETECTION = 0.8
"""The smallest acceptable detection of a loss of DEVIATIONS."""
BASELINE_SEEDS = 20, 40, 100
"""The numbers of baseline seeds among which a refused update suggests one."""


def power(allowed_loss: float, deviation: float, n_before: int, n_now: int, loss: float = 0.0) -> float:
    """Return the probability that code with this loss passes, if both samples have this standard deviation.

    The default loss of 0 stands for unchanged code.
    """
    from scipy.stats import nct, t

    if deviation == 0:
        return float(loss <= allowed_loss)
    shares = [1 / n_before, 1 / n_now]
    freedom = welch_freedom(shares, [n_before, n_now])
    shift = (allowed_loss - loss) / (deviation * math.sqrt(sum(shares)))
    if abs(shift) > FAR:
        return float(shift > 0)
    return float(nct.sf(t.isf(LEVEL, freedom), freedom, shift))


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


def detectable_loss(values: Sequence[float], n_now: int, allowed_loss: float, direction: Goal) -> float:
    """Return the loss of the mean that a check of `n_now` seeds calls worse with probability DETECTION.

    Simulated checks draw their values from those of the baseline. In each, either test of `inference.is_worse` calls
    every loss from some size on worse, so the result is a quantile of these sizes.
    """
    import numpy as np
    from scipy.stats import t

    n_before, deviation = len(values), statistics.stdev(values)
    if deviation == 0:
        return allowed_loss
    before = (np.array(values) - statistics.fmean(values)) * (1 if direction == "min" else -1)
    # A fixed seed, because the same values must always give the same loss. The factor makes the variance of the draws
    # that of the values, which divides by n - 1.
    draws = np.random.default_rng(0).choice(before, (RESAMPLES, n_now)) * math.sqrt(n_before / (n_before - 1))
    shares = [np.full(RESAMPLES, deviation**2 / n_before), draws.var(axis=1, ddof=1) / n_now]
    freedom = welch_freedom(shares, [n_before, n_now])
    by_mean = allowed_loss - draws.mean(axis=1) + t.isf(LEVEL, freedom) * np.sqrt(sum(shares))
    by_rank = np.full(RESAMPLES, np.inf)
    if (pairs := _deciding_pairs(n_before, n_now)) is not None:
        gaps = (before[:, None] + allowed_loss - draws[:, None, :]).reshape(RESAMPLES, -1)
        by_rank = np.partition(gaps, pairs - 1, axis=1)[:, pairs - 1]
    return float(np.quantile(np.minimum(by_mean, by_rank), DETECTION))


@functools.cache
def _deciding_pairs(n: int, m: int) -> int | None:
    """Return how many of the n * m pairs must have the higher value in the second sample, for p of at most LEVEL.

    It is the one-sided test of ranks of samples without ties; None if the samples are too small for it.
    """
    import numpy as np

    # How many orders have 0, 1, ... such pairs: the coefficients of prod_i (1 - q^(n+i)) / (1 - q^i), i = 1 ... m.
    orders = np.zeros(n * m + 1)
    orders[0] = 1
    for i in range(1, m + 1):
        orders[n + i :] -= orders[: -(n + i)].copy()
        for k in range(i, len(orders)):
            orders[k] += orders[k - i]
    p = orders[::-1].cumsum() / math.comb(n + m, n)  # for n * m such pairs, for n * m - 1, ...
    deciding = int(np.count_nonzero(p <= LEVEL))
    return n * m - deciding + 1 if deciding else None


def seeds_needed(values: Sequence[float], n_now: int, direction: Goal) -> tuple[int, int] | None:
    """Return the numbers of seeds of a baseline and of a check that detect a loss of DEVIATIONS, or None.

    First try more seeds in a check, with the margins that follow from the values. If that is not enough, also try a
    larger baseline, assuming normal values.
    """
    checks = range(n_now, 4 * n_now + 1)
    for n in checks:
        if detection(values, n, stored_margin(values, n, direction)) >= DETECTION:
            return len(values), n
    for measured in BASELINE_SEEDS:
        for n in checks if measured > len(values) else ():
            if 1 - power(_margin_by_power(1.0, measured, n), 1.0, measured, n, DEVIATIONS) >= DETECTION:
                return measured, n
    return None


def stored_margin(values: Sequence[float], n_now: int, direction: Goal) -> float:
    """Return the measured margin as a baseline stores it, to two digits.

    The search for the seeds that a check needs uses it too, because with another margin its advice would be refused.
    """
    return float(f"{measured_margin(values, n_now, direction):.2g}")


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
    """Return the upper bound of `inference.measure_loss` for each row of draws; the values are not all equal."""
    import numpy as np
    from scipy.stats import t

    sign, n_before, n_now = 1 if direction == "min" else -1, len(values), draws.shape[1]
    losses = sign * (draws.mean(axis=1) - statistics.fmean(values))
    before, now = statistics.variance(values) / n_before, draws.var(axis=1, ddof=1) / n_now
    freedom = welch_freedom([np.full_like(now, before), now], [n_before, n_now])
    bounds: NDArray[np.float64] = losses + t.isf(LEVEL, freedom) * np.sqrt(before + now)
    return bounds


def _margin_by_power(deviation: float, n_before: int, n_now: int) -> float:
    """Return the allowed loss that has power CERTAIN at the upper limit of this standard deviation."""
    from scipy.optimize import brentq
    from scipy.stats import chi2

    limit = deviation * math.sqrt((n_before - 1) / float(chi2.isf(0.9, n_before - 1)))
    far = FAR * limit * math.sqrt(1 / n_before + 1 / n_now)
    return float(brentq(lambda margin: power(margin, limit, n_before, n_now) - CERTAIN, 0.0, far))
