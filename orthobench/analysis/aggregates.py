"""Make a number of the values over seeds in the way of a printed one: mean, median or best of k, scaled or not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from orthobench.analysis.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    Agreement,
    Equivalence,
    best_of,
    equivalence,
    median,
    summarize,
    within,
)
from orthobench.metric import Metric
from orthobench.papers import Aggregation

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Accuracy = TypeVar("Accuracy", float, "pd.Series", "NDArray[np.float64]")


@dataclass(frozen=True)
class Aggregate:
    """A number over seeds.

    Attributes:
        n: seeds that make it.
        value: the mean, the median or the best of the values.
        half_width: of a mean, that of its 95 % interval; None for fewer than two values.
        low: lower end of the 90 % interval that decides the verdict, that of one more run where print is of one seed;
            None without one.
        high: upper end.
        deviation: the standard deviation in the way of the printed one; None without one.
        words: how it is made, where print states its own way; else empty.
    """

    n: int
    value: float
    half_width: float | None = None
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    words: str = ""

    def __str__(self) -> str:
        spread = "" if self.half_width is None else f" ± {self.half_width:.2g}"
        return f"{self.value:.4g}{spread}"


def aggregate(values: Sequence[float], how: Aggregation, metric: Metric | None) -> Aggregate | None:
    """Return the number that values over seeds make; None without a finite one.

    Args:
        values: in the order of the seeds, already scaled. A run without a value is infinite, on the worse side.
        how: the printed number's way. The best of k is that of the first k seeds, and the others widen its interval.
    """
    sign = metric.sign if metric else 1.0
    chosen = list(values)[: how.seeds] if how.over == "best" else list(values)
    finite = [value for value in chosen if math.isfinite(value)]
    if not finite:
        return None
    words = _words(how, len(chosen) if how.over in ("best", "median") else len(finite))
    deviation = None
    if len(finite) > 1 and how.deviation in ("sample", "population"):
        deviation = statistics.stdev(finite) if how.deviation == "sample" else statistics.pstdev(finite)
        words = f"{words}, {how.deviation} deviation {deviation:.2g}"
    if how.over == "best":
        best = sign * min(sign * value for value in chosen)
        low: float | None = None
        high: float | None = None
        if len(values) >= FEWEST_SEEDS:
            low, high = best_of(values, how.seeds or 1, sign, 2 * LEVEL)
        return Aggregate(len(chosen), best, None, low, high, deviation, words)
    if how.over == "median":
        middle = median(chosen, 2 * LEVEL)
        assert middle is not None
        return Aggregate(len(chosen), middle.value, None, middle.low, middle.high, deviation, words)
    summary = summarize(finite)
    interval = equivalence(chosen, 0.0, 0.0, of_one_run=how.seeds == 1)
    assert summary is not None
    return Aggregate(len(finite), summary.mean, summary.half_width, interval.low, interval.high, deviation, words)


def verdict(
    values: Sequence[float], number: Aggregate, how: Aggregation, target: float, margin: float
) -> tuple[Agreement, str]:
    """Return whether the number over seeds agrees with a printed one, and why, in words.

    A mean is judged by two one-sided t tests, a median and a best of k by the bootstrap interval. A printed number of
    one seed is judged by the interval of one more run.
    """
    if how.over in ("best", "median"):
        result = Equivalence(within(number.low, number.high, target, margin), number.low, number.high)
    else:
        result = equivalence(values, target, margin, of_one_run=how.seeds == 1)
        diverged = sum(map(math.isinf, values))
        if diverged:
            return result.verdict, f"{diverged} of {len(values)} runs diverged"
    if len(values) < FEWEST_SEEDS:
        return result.verdict, f"fewer than {FEWEST_SEEDS} seeds decide nothing"
    if result.low is None or result.high is None:
        return "undecided", "too few seeds for an interval of the median"
    where = {"agrees": "lies within", "differs": "lies outside", "undecided": "crosses"}[result.verdict]
    mean = " of one more run" if how.seeds == 1 else ""
    of = {"best": f" of the best of {how.seeds}", "median": " of the median"}.get(how.over or "", mean)
    return result.verdict, f"90 % interval{of} {result.low:.4g} to {result.high:.4g} {where} "


def chance_level(baseline: float | None) -> float | None:
    """Return the accuracy by chance that accuracies are scaled by, or None: unknown, or as good as an accuracy gets."""
    return None if baseline is None or baseline >= 1 else baseline


def scaled(value: Accuracy, chance: float) -> Accuracy:
    """Return an accuracy, or several, as the share of the way from chance to 1: (a - chance) / (1 - chance)."""
    return (value - chance) / (1 - chance)


def _words(how: Aggregation, seeds: int) -> str:
    """Return how the number is made, and that print has other seeds; empty where print states nothing."""
    if not how.words:
        return ""
    text = how.over_seeds(seeds) + (", scaled" if how.scaled else "")
    return text if how.seeds in (None, seeds) else f"{text} (printed: {how.over_seeds(how.seeds)})"
