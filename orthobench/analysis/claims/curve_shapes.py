"""Claims about the curves of a model: where they start and end, when and how they drop."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Literal

import numpy as np
import pandas as pd
from pydantic import Field

from orthobench.analysis.claims.claim import ClaimVerdict, ModelClaim, Numbers
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import CurveEnd, share_of_seeds, side

AT_BASELINE = 1.1
"""A curve has come down to the baseline when it is at most this many times the baseline."""
LEFT_BASELINE = 2 - AT_BASELINE
"""A curve has left the baseline when it is at most this many times the baseline."""
DROP = (0.1, 0.5, 0.9)
"""Fractions of the way down at which the drops of curves are compared."""


class CurveClaim(ModelClaim):
    """A claim about a metric over training; levels are multiples of the metric's baseline."""

    metric: str = Field("", description="a number of a probe or, with `split`, a metric of the task; none: its main")
    split: Literal["", "train", "valid", "test"] = Field("", description="of the task's metric; none: test")

    @property
    def named(self) -> str:
        return self.metric

    def logged(self, variant: VariantData) -> tuple[str, str]:
        return self.split or ("probe" if self.metric else "test"), self.metric or variant.run.metric

    def baseline(self, variant: VariantData) -> float:
        """Return the baseline of the claim's metric, or else of the task's main metric; NaN without either."""
        main = variant.run.baselines.get(variant.run.metric)
        value = variant.run.baselines.get(self.metric, main) if self.split else main
        return math.nan if value is None else float(value)

    def share_of_baseline(self, value: float, variant: VariantData) -> float:
        """Return a value divided by the baseline; NaN if there is none, or if it is 0."""
        return value / (self.baseline(variant) or math.nan)

    def sign(self, variant: VariantData) -> float:
        """Return 1 if lower values of the claim's metric are better, or else -1."""
        metric = variant.run.declared(self.metric) if self.metric else variant.run.main_metric
        return 1.0 if metric is None else metric.sign

    def curves(self, variant: VariantData) -> list[pd.Series]:
        """Return the claim's metric of every finished run, by iteration."""
        return list(variant.series_of_runs(*self.logged(variant)).values())

    def curve_ends(self, variant: VariantData) -> list[CurveEnd]:
        """Return the end of the claim's metric of every finished run."""
        return list(variant.ends_of(*self.logged(variant)).values())

    def ends(self, variant: VariantData) -> list[float]:
        """Return the median of the last tests of every finished run."""
        return [end.value for end in self.curve_ends(variant)]

    def falls(self, variant: VariantData, parts: Sequence[float], low: float = 0.0) -> list[list[float]]:
        """Return, for every run, the first iterations at which it reaches these fractions of the way down.

        The way leads from the baseline down to `low`.

        Args:
            low: the end of the way, as a share of the baseline.
        """
        levels = [self.baseline(variant) * (1 - part * (1 - low)) for part in parts]
        return [[first_below(series, level) for level in levels] for series in self.curves(variant)]

    def drops(self, variant: VariantData) -> Iterator[float | None]:
        """Yield the number of iterations that each run needs from a tenth to nine tenths of the way down to 0.

        The way starts at the baseline. The number is infinite for a drop that does not end, and None for a run that
        does not drop a tenth below the baseline.
        """
        for start, end in self.falls(variant, (DROP[0], DROP[-1])):
            yield end - start if math.isfinite(start) else None


def first_below(series: pd.Series, limit: float) -> float:
    """Return the first iteration at or below the limit; infinity for a run that stays above it."""
    return float(min(series.index[series <= limit], default=math.inf))


class EndsBelow(CurveClaim):
    """The metric ends at a share of the baseline, or lower."""

    check: Literal["ends_below"] = "ends_below"
    share: float = Field(ge=0, description="the highest end, as a share of the baseline")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        limit = self.share * self.baseline(variant)
        numbers = self.ends(variant)
        against = side(self.curve_ends(variant), limit)
        below = Numbers("share of the last tests below it", 1 - against.tests_beyond)
        return share_of_seeds(end <= limit for end in numbers), [
            Numbers("end", numbers),
            Numbers("limit", limit),
            below,
        ]


class EndsBetween(CurveClaim):
    """The metric ends between a share of the baseline and the baseline."""

    check: Literal["ends_between"] = "ends_between"
    share: float = Field(ge=0, description="the lowest end, as a share of the baseline")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level = self.baseline(variant)
        low, high = self.share * level, AT_BASELINE * level
        numbers = self.ends(variant)
        share = share_of_seeds(low <= end <= high for end in numbers)
        return share, [Numbers("end", numbers), Numbers("limits", low), Numbers("limits", high)]


class SettlesAbove(CurveClaim):
    """The metric comes down to the baseline, and never below a share of it."""

    check: Literal["settles_above"] = "settles_above"
    share: float = Field(ge=0, description="the lowest value, as a share of the baseline")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level = self.baseline(variant)
        low, high = self.share * level, AT_BASELINE * level
        lows = [float(series.min()) for series in self.curves(variant)]
        numbers = self.ends(variant)
        share = share_of_seeds(least >= low and end <= high for least, end in zip(lows, numbers, strict=True))
        return share, [
            Numbers("lowest value", lows),
            Numbers("its limit", low),
            Numbers("end", numbers),
            Numbers("limit of the end", high),
        ]


class Starts(CurveClaim):
    """The published curve begins at the baseline or away from it, and the metric comes down later.

    A program that tests every 100 iterations draws no test before training. Ours have one, which is shown as well.
    """

    check: Literal["starts"] = "starts"
    at_baseline: bool = Field(description="whether it starts within a tenth of the baseline")
    after: int = Field(ge=0, description="the iteration of the first point of the published curve")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level = self.baseline(variant)
        curves = zip(self.curves(variant), self.ends(variant), strict=True)
        begun = [(series / level, end / level) for series, end in curves if self.after in series.index]
        starts, ends = [float(series[self.after]) for series, _ in begun], [end for _, end in begun]
        share = share_of_seeds(
            (LEFT_BASELINE <= start <= AT_BASELINE) == self.at_baseline and end <= AT_BASELINE
            for start, end in zip(starts, ends, strict=True)
        )
        untrained = [float(series[0]) for series, _ in begun if self.after and 0 in series.index]
        return share, [
            Numbers("iterations before the first test", self.after, ",d"),
            Numbers("first test, in baselines", starts),
            Numbers("end, in baselines", ends),
            *([Numbers("test before training, in baselines", untrained, ",.4g")] if untrained else []),
        ]


class _Stays(CurveClaim):
    """A claim about the iterations between coming down to the baseline and leaving it, a tenth below."""

    iterations: int = Field(ge=0, description="the limit, in iterations at the baseline")

    def is_as_stated(self, stay: float) -> bool:
        raise NotImplementedError

    def judge(self, variant: VariantData) -> ClaimVerdict:
        """Check how long the runs stay; the claim does not hold for a run that never drops below the baseline."""
        stays = [_stay(series, self.baseline(variant)) for series in self.curves(variant)]
        share = share_of_seeds(math.isfinite(stay) and self.is_as_stated(stay) for stay in stays)
        return share, [
            Numbers("iterations at the baseline before the curve leaves it", stays, ",.0f"),
            Numbers("limit", self.iterations, ",d"),
        ]


def _stay(series: pd.Series, level: float) -> float:
    """Return the number of iterations at the baseline: infinity if a run stays there, NaN if it never comes down."""
    return first_below(series, LEFT_BASELINE * level) - first_below(series, AT_BASELINE * level)


class Waits(_Stays):
    """The metric stays at the baseline for some iterations or longer, and then drops; `text` has to say both."""

    check: Literal["waits"] = "waits"

    def is_as_stated(self, stay: float) -> bool:
        return stay >= self.iterations


class Bypasses(_Stays):
    """The metric drops below the baseline within some iterations of coming down to it."""

    check: Literal["bypasses"] = "bypasses"

    def is_as_stated(self, stay: float) -> bool:
        return stay <= self.iterations


class DropsWithin(CurveClaim):
    """The drop from a tenth to nine tenths of the way from the baseline to 0 takes at most some epochs."""

    check: Literal["drops_within"] = "drops_within"
    epochs: float = Field(ge=0, description="the longest drop, in epochs")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        per_epoch = variant.run.iterations_per_epoch
        epochs = [math.inf if drop is None else drop / per_epoch for drop in self.drops(variant)]
        share = share_of_seeds(drop <= self.epochs for drop in epochs)
        return share, [
            Numbers("epochs from a tenth to nine tenths of the way down to 0", epochs, ".2g"),
            Numbers("limit", self.epochs, "g"),
        ]


class Smooth(CurveClaim):
    """The curve leaves the baseline for good, and has no large setback after that."""

    check: Literal["smooth"] = "smooth"
    setback: float = Field(
        ge=0, description="the largest change for the worse from the best test so far, as a share of the baseline"
    )

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level, sign = self.baseline(variant), self.sign(variant)
        setbacks = [_setback(series, level, sign) / level for series in self.curves(variant)]
        share = share_of_seeds(setback <= self.setback for setback in setbacks)
        return share, [
            Numbers("largest setback after leaving the baseline for good, in baselines", setbacks, ".2g"),
            Numbers("limit", self.setback, "g"),
        ]


def _setback(series: pd.Series, level: float, sign: float) -> float:
    """Return by how much a test is worse than the best one so far, at most, after the last test at the baseline.

    The result is infinite if the last test is at the baseline or worse, because the run has not left it for good.

    Args:
        level: the baseline.
        sign: makes lower values better, as `Metric.sign`.
    """
    left = (LEFT_BASELINE if sign > 0 else AT_BASELINE) * level
    curve = sign * series.to_numpy()
    # Not >=, because a test that is NaN counts as one at the baseline.
    (at_baseline,) = np.nonzero(~(curve < sign * left))
    curve = curve[at_baseline[-1] + 1 :] if len(at_baseline) else curve
    return float((curve - np.minimum.accumulate(curve)).max()) if len(curve) else math.inf


class Returns(CurveClaim):
    """The metric falls to a share of the baseline, and later rises to within a tenth of the baseline."""

    check: Literal["returns"] = "returns"
    share: float = Field(ge=0, description="the level that it reaches first, as a share of the baseline")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level = self.baseline(variant)
        limit = self.share * level
        later = [series[series.index > first_below(series, limit)] for series in self.curves(variant)]
        heights = [float(series.max()) if len(series) else -math.inf for series in later]
        share = share_of_seeds(height >= LEFT_BASELINE * level for height in heights)
        return share, [
            Numbers("level to reach first", limit),
            Numbers("highest test after it", heights),
            Numbers("limit", LEFT_BASELINE * level),
        ]


class Late(CurveClaim):
    """The metric comes down to the baseline, but falls 5 % below it only after some epochs, or never."""

    check: Literal["late"] = "late"
    epochs: float = Field(ge=0, description="the earliest time at 5 % below the baseline, in epochs")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        level, per_epoch = self.baseline(variant), variant.run.iterations_per_epoch
        passed = [at / per_epoch for (at,) in self.falls(variant, (0.05,))]
        last = [end / level for end in self.ends(variant)]
        share = share_of_seeds(at >= self.epochs and end <= AT_BASELINE for at, end in zip(passed, last, strict=True))
        return share, [
            Numbers("epochs until the curve is 5 % below the baseline", passed, ".2g"),
            Numbers("limit", self.epochs, "g"),
            Numbers("end, in baselines", last),
        ]


class Grows(CurveClaim):
    """The last value is many times the first."""

    check: Literal["grows"] = "grows"
    ratio: float = Field(ge=0, description="the lowest ratio of the last value to the first")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        # At least 1e-300, because a curve may begin at exactly 0.
        ratios = [float(series.iloc[-1]) / max(float(series.iloc[0]), 1e-300) for series in self.curves(variant)]
        share = share_of_seeds(ratio >= self.ratio for ratio in ratios)
        return share, [Numbers("last value by the first", ratios), Numbers("lower limit", self.ratio, "g")]


class StaysBelow(CurveClaim):
    """No value exceeds a limit."""

    check: Literal["stays_below"] = "stays_below"
    limit: float = Field(description="the highest value, in the unit of the metric")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        highest = [float(series.max()) for series in self.curves(variant)]
        share = share_of_seeds(value <= self.limit for value in highest)
        return share, [Numbers("highest value", highest), Numbers("limit", self.limit, "g")]


class StaysAbove(CurveClaim):
    """Every value exceeds a limit."""

    check: Literal["stays_above"] = "stays_above"
    limit: float = Field(description="the value that all exceed, in the unit of the metric")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        lowest = [float(series.min()) for series in self.curves(variant)]
        share = share_of_seeds(value > self.limit for value in lowest)
        return share, [Numbers("lowest value", lowest, ".7g"), Numbers("limit", self.limit, "g")]
