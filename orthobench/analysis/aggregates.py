"""Aggregate values over seeds the way a published number was: mean, median or best of k, scaled or not."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, TypeVar

from orthobench.analysis.statistics import (
    FEWEST_SEEDS,
    LEVEL,
    Agreement,
    agreement_within,
    best_of,
    equivalence,
    median,
)
from orthobench.metric import Metric
from orthobench.papers import Aggregation

if TYPE_CHECKING:
    import numpy as np
    import pandas as pd
    from numpy.typing import NDArray

Accuracy = TypeVar("Accuracy", float, "pd.Series", "NDArray[np.float64]")

WIDEST = 4.0
"""The width of a 90 % interval, in tolerances, above which there is no verdict, because hardly any number could leave
it. It decides before the published number is looked at. If wide intervals could refute but not support a number, most
verdicts on widely spread runs would be refutations by chance."""


@dataclass(frozen=True)
class PublishedTarget:
    """A published number, and how far a measured one may differ from it and still agree.

    Attributes:
        margin: the largest distance, or the largest factor if errors span decades (`is_logarithmic`).
        error: the number printed after ±, or 0 without one.
        low: the smallest value that the metric can have.
        high: the largest value that the metric can have.
    """

    value: float = 0.0
    margin: float = 1.0
    error: float = 0.0
    is_logarithmic: bool = False
    low: float = -math.inf
    high: float = math.inf

    def units(self, value: float) -> float:
        """Return by how many margins a value exceeds the target."""
        if not math.isfinite(value):
            return value
        if self.is_logarithmic:
            return math.log(value / self.value) / math.log(self.margin)
        return (value - self.value) / self.margin

    def at(self, units: float) -> float:
        """Return the value at this number of margins above the target, within the possible range."""
        value = self.value * self.margin**units if self.is_logarithmic else self.value + self.margin * units
        return min(max(value, self.low), self.high)

    def width(self, low: float, high: float) -> float:
        """Return the width of an interval in margins, as far as the metric can have its values."""

        def at_most(end: float) -> float:
            return self.units(end) if end > 0 or not self.is_logarithmic else -math.inf

        return min(high, at_most(self.high)) - max(low, at_most(self.low))

    @property
    def error_units(self) -> float:
        """The printed error in margins; to first order where the scale is logarithmic."""
        return self.error / (self.value * math.log(self.margin) if self.is_logarithmic else self.margin)


@dataclass(frozen=True)
class Aggregate:
    """A number over seeds.

    Attributes:
        n: the number of seeds.
        value: the mean, the median or the best of the values.
        low: lower end of the 90 % interval that decides the verdict; None without one.
        high: upper end of the interval.
        deviation: the standard deviation, computed as the published one was; None without one.
        words: how the number was computed, if the paper says how it computed its own; otherwise empty.
    """

    n: int
    value: float
    low: float | None = None
    high: float | None = None
    deviation: float | None = None
    words: str = ""

    @property
    def interval(self) -> str:
        """The 90 % interval as text; empty without one."""
        return "" if self.low is None or self.high is None else f"{self.low:.4g} to {self.high:.4g}"

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.4g}, {self.high:.4g}]"
        return f"{self.value:.4g}{interval}"


def aggregate(
    values: Sequence[float], how: Aggregation, metric: Metric | None, target: PublishedTarget = PublishedTarget()
) -> tuple[Aggregate, Agreement] | None:
    """Aggregate values over seeds, and check whether the result agrees with a target; None without a finite value.

    A mean is judged by `equivalence`, and a median or a best of k by its own interval. The spread of the values decides
    first: if the interval of our number, without a published deviation, has more than `WIDEST` margins, the result is
    "too wide to say", whatever the target.

    A published single run is compared with the runs' own spread, which more seeds do not narrow. There the 90 % of runs
    in mean ± 1.645 s must not have more, because a prediction interval of few seeds stays below this limit only where s
    is too small by chance. So of runs of the same distribution as the published one, at most 10 % are "outside the
    spread". They are 13 % of the verdicts if that distribution's deviation is one margin, and a third if it is two.

    Args:
        values: in the order of the seeds, already scaled. A run without a value is infinite, on the worse side.
        how: how the published number was computed. The best of k is the best of the first k seeds, and the other seeds
            only affect its interval.
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
    units = [target.units(value) for value in values]
    low: float | None = None
    high: float | None = None
    own: tuple[float, float] | None = None
    if how.over == "best":
        n, value = len(chosen), sign * min(sign * value for value in chosen)
        if len(values) >= FEWEST_SEEDS:
            own = low, high = best_of(units, how.seeds or 1, sign, 2 * LEVEL)
        agreement = agreement_within(low, high, 0.0, 1.0)
    elif how.over == "median":
        middle, n, value = median(units, 2 * LEVEL), len(chosen), statistics.median(chosen)
        if middle and middle.low is not None and middle.high is not None:
            own = low, high = middle.low, middle.high
        agreement = agreement_within(low, high, 0.0, 1.0)
    else:
        n, value = len(finite), math.fsum(finite) / len(finite)
        result = equivalence(units, 0.0, 1.0, target.error_units, how.seeds)
        low, high, agreement = result.low, result.high, result.verdict
        if n == len(values) >= FEWEST_SEEDS:
            own = _own_interval(units, how)
    if own is not None and target.width(*own) > WIDEST:
        agreement = "too wide to say"
    if low is not None and high is not None:
        low, high = target.at(low), target.at(high)
    return Aggregate(n, value, low, high, deviation, words), agreement


def _own_interval(values: Sequence[float], how: Aggregation) -> tuple[float, float]:
    """Return the 90 % interval of the mean; next to a single published run that of normal runs with this deviation."""
    from scipy.special import stdtrit

    mean, n = statistics.fmean(values), len(values)
    is_single = how.seeds == 1
    quantile = statistics.NormalDist().inv_cdf(1 - LEVEL) if is_single else stdtrit(n - 1, 1 - LEVEL) / math.sqrt(n)
    half_width = float(quantile) * statistics.stdev(values)
    return mean - half_width, mean + half_width


class Basis(StrEnum):
    """What decides whether a number over seeds agrees with a published one."""

    DIVERGED = "not all runs have a result: some diverged"
    FEW = "fewer than three seeds: no verdict"
    NO_INTERVAL = "too few seeds for an interval of the median"
    WIDE_SPREAD = "90 % of our runs spread too far to judge a single one"
    WIDE = "the 90 % interval is too wide: more seeds would narrow it"
    ONE_RUN = "90 % prediction interval of one more run"
    WIDENED = "90 % interval, widened by the published deviation"
    MEAN = "90 % interval of the mean"
    MEDIAN = "90 % interval of the median"
    BEST = "90 % interval of the best"


def agreement_basis(
    values: Sequence[float], number: Aggregate, agreement: Agreement, how: Aggregation, target: PublishedTarget
) -> Basis:
    """Return what decides whether a number over seeds agrees with a published one."""
    is_mean = how.over not in ("best", "median")
    if is_mean and any(map(math.isinf, values)):
        return Basis.DIVERGED
    if len(values) < FEWEST_SEEDS:
        return Basis.FEW
    if not number.interval:
        return Basis.NO_INTERVAL
    if agreement == "too wide to say":
        return Basis.WIDE_SPREAD if is_mean and how.seeds == 1 else Basis.WIDE
    if is_mean:
        return Basis.ONE_RUN if how.seeds == 1 else Basis.WIDENED if target.error else Basis.MEAN
    return Basis.BEST if how.over == "best" else Basis.MEDIAN


def chance_level(baseline: float | None) -> float | None:
    """Return the chance accuracy by which accuracies are scaled, or None if it is unknown or already perfect."""
    return None if baseline is None or baseline >= 1 else baseline


def scaled(value: Accuracy, chance: float) -> Accuracy:
    """Rescale accuracies so that chance becomes 0 and 1 stays 1: (a - chance) / (1 - chance)."""
    return (value - chance) / (1 - chance)


def _words(how: Aggregation, seeds: int) -> str:
    """Describe how the number is computed and how the paper's seeds differ; empty if the paper says nothing."""
    if not how.words:
        return ""
    text = how.over_seeds(seeds) + (", scaled" if how.scaled else "")
    return text if how.seeds in (None, seeds) else f"{text} (published: {how.over_seeds(how.seeds)})"
