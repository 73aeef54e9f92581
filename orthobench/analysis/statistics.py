"""Summaries over seeds."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np


@dataclass(frozen=True)
class Summary:
    """Mean of n values with the half width of its 95 % Student-t interval; None for fewer than two values."""

    n: int
    mean: float
    half_width: float | None

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2g}"
        return f"{self.mean:.4g}{spread}"


def summarize(values: Sequence[float]) -> Summary | None:
    """Return the summary of the finite values; None without any."""
    finite = [value for value in values if math.isfinite(value)]
    n = len(finite)
    if n == 0:
        return None
    mean = math.fsum(finite) / n
    if n == 1:
        return Summary(1, mean, None)
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    return Summary(n, mean, float(stdtrit(n - 1, 0.975)) * deviation / math.sqrt(n))


TOO_FEW = 5
"""Number of values a side below which a comparison is called weak."""
DRAWS = 9_999
"""Permutations to draw; with no more than these, all are tried and the test is exact."""


@dataclass(frozen=True)
class Comparison:
    """Two samples: the difference of means (first minus second), its test and its size.

    Attributes:
        effect: the mean difference over the differences' standard deviation (paired, d_z) or over the pooled one
            (Cohen's d); None where the deviation is zero.
        smallest_p: the smallest p that samples of these sizes can give.
    """

    n: tuple[int, int]
    difference: Summary
    test: str
    p: float
    smallest_p: float
    effect: float | None
    effect_name: str

    @property
    def words(self) -> str:
        """Return a warning about few seeds; empty if there are enough."""
        if self.smallest_p > 0.05:
            return f"too few seeds: no difference, however large, could give p below {self.smallest_p:.2g}"
        return "few seeds: a small difference will not show" if min(self.n) < TOO_FEW else ""


def compare_paired(first: Sequence[float], second: Sequence[float]) -> Comparison | None:
    """Compare pairs by the sign-flip permutation test of their differences; None for fewer than two."""
    differences = [left - right for left, right in zip(first, second, strict=True)]
    n = len(differences)
    summary = summarize(differences)
    if summary is None or n < 2:
        return None
    import numpy as np
    from scipy.stats import permutation_test

    exact = 2**n <= DRAWS
    data = (np.asarray(differences),)
    p = permutation_test(data, np.mean, permutation_type="samples", n_resamples=DRAWS, vectorized=True, rng=0).pvalue
    name = f"paired sign-flip permutation test ({'exact' if exact else f'{DRAWS:,} draws'})"
    smallest = 2.0 ** (1 - n) if exact else 2 / (DRAWS + 1)
    return Comparison((n, n), summary, name, float(p), smallest, _ratio(summary.mean, _deviation(differences)), "d_z")


def compare_unpaired(first: Sequence[float], second: Sequence[float]) -> Comparison | None:
    """Compare independent samples by the permutation test of the means; None for fewer than two on a side."""
    n, m = len(first), len(second)
    if min(n, m) < 2:
        return None
    import numpy as np
    from scipy.stats import permutation_test, ttest_ind

    splits = math.comb(n + m, n)
    exact = splits <= DRAWS
    data = (np.asarray(first), np.asarray(second))
    p = permutation_test(data, _mean_difference, n_resamples=DRAWS, vectorized=True, rng=0).pvalue
    mean = math.fsum(first) / n - math.fsum(second) / m
    interval = ttest_ind(first, second, equal_var=False).confidence_interval(0.95)
    half = float(interval.high - interval.low) / 2
    squares = sum((len(side) - 1) * _deviation(side) ** 2 for side in (first, second))
    pooled = math.sqrt(squares / (n + m - 2))
    name = f"permutation test of the means ({'exact' if exact else f'{DRAWS:,} draws'})"
    smallest = min(1.0, 2 / splits) if exact else 2 / (DRAWS + 1)
    return Comparison((n, m), Summary(n + m, mean, half), name, float(p), smallest, _ratio(mean, pooled), "Cohen's d")


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values with Holm's adjustment for the number of tests (Holm, 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


def _mean_difference(first: np.ndarray, second: np.ndarray, axis: int = -1) -> np.ndarray:
    difference: np.ndarray = first.mean(axis=axis) - second.mean(axis=axis)
    return difference


def _deviation(values: Sequence[float]) -> float:
    mean = math.fsum(values) / len(values)
    return math.sqrt(math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1))


def _ratio(value: float, scale: float) -> float | None:
    return value / scale if scale > 0 else None
