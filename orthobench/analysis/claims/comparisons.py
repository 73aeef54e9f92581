"""Claims that compare the curves or results of a model with other models' curves or results."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Literal

from pydantic import Field

from orthobench.analysis.claims.claim import ClaimVerdict, Comparing, Numbers, compared, shares_of_seeds
from orthobench.analysis.claims.curve_shapes import AT_BASELINE, DROP, CurveClaim, first_below
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.paper_tables import TIMES, values
from orthobench.analysis.statistics import lower, lowest, share_of_pairs

DEPARTURE = (0.05, 0.1, 0.2)
"""Fractions of the way down from the baseline to 0 at which curves leave the baseline."""
RATIO_TOLERANCE = 0.25
"""How far a ratio of two models' results may be from the printed one, as a share of it.

The printed ratios are of times, which another processor changes as well. A quarter is a choice that no result has
tested: in November 2026, results.db decides none of these claims.
"""
MOVED = 0.5
"""If the lowest end of all models is above this share of the baseline, no curve has dropped."""


class CurveComparison(Comparing, CurveClaim):
    """A comparison of a metric over training, or of its results."""

    def results(self, variant: VariantData) -> list[float]:
        """Return a result of every finished run: at the evaluation that the paper's rule selects, or a curve's end."""
        if variant.selection == "curve" and self.metric not in TIMES:
            return self.ends(variant)
        return values(variant, variant.selection, self.metric or variant.run.metric, self.split or "test")

    def far_better(self, variant: VariantData) -> float:
        """Return half of the baseline, or twice the baseline if higher values are better."""
        return self.baseline(variant) * (0.5 if self.sign(variant) > 0 else 2.0)


def _earlier(first: Sequence[float], other: Sequence[float]) -> float:
    return min(map(lower, first, other))


def _later(first: Sequence[float], other: Sequence[float]) -> float:
    return _earlier(other, first) if all(map(math.isfinite, first)) else 0.0


class First(CurveComparison):
    """A seed drops earlier than another model's, at three levels of the way from the baseline to the lowest end."""

    check: Literal["first"] = "first"
    departing: bool = Field(False, description="compare only the first part of the drop, measured down to 0")

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        return _in_order(self, variant, others, _earlier, self.departing)


class Later(CurveComparison):
    """A seed drops, but later than another model's, at three levels of the way from the baseline to the lowest end."""

    check: Literal["later"] = "later"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        return _in_order(self, variant, others, _later)


def _in_order(
    claim: CurveComparison,
    variant: VariantData,
    others: Sequence[VariantData],
    score: Callable[[Sequence[float], Sequence[float]], float],
    departing: bool = False,
) -> ClaimVerdict:
    """Compare the iterations at which curves reach the levels of the way down.

    Args:
        score: 1 for a pair in the claimed order, 0.5 for a tie, else 0.
    """
    everyone = [variant, *others]
    parts, low = (DEPARTURE, 0.0) if departing else (DROP, _lowest_end(claim, everyone))
    own, *rivals = (claim.falls(each, parts, low) for each in everyone)
    if low > MOVED:
        share, _ = shares_of_seeds(own, rivals, lambda first, other: 0.0)
        return share, [Numbers("lowest end of all curves, in baselines", low, ".2g"), Numbers("limit", MOVED)]
    share, shares = shares_of_seeds(own, rivals, score)
    begun, ended = ([[levels[at] for levels in seeds] for seeds in (own, *rivals)] for at in (0, -1))
    names = (
        ("iterations to 5 % of the way down", "to 20 %")
        if departing
        else ("iterations to 10 % of the way down", "to 90 %")
    )
    return share, [
        *compared(names[0], everyone, begun, [None] * len(shares), ",.0f"),
        *compared(names[1], everyone, ended, shares, ",.0f"),
    ]


def _lowest_end(claim: CurveComparison, variants: Sequence[VariantData]) -> float:
    """Return the lowest end of these variants' runs, as a share of the baseline, and at least 0."""
    numbers = [claim.share_of_baseline(end, variant) for variant in variants for end in claim.ends(variant)]
    return max(0.0, min(numbers, default=math.inf))


class Slower(CurveComparison):
    """A drop takes longer than another model's, or does not end, in the pairs of seeds in which both begin.

    If a run of the claim's model does not drop, the claim does not hold for it. If a run of another model does not
    drop, there is nothing to compare.
    """

    check: Literal["slower"] = "slower"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone = [variant, *others]
        own, *rivals = (list(self.drops(each)) for each in everyone)

        def longer(first: float | None, other: float | None) -> float | None:
            if first is None:
                return 0.0
            return None if other is None else lower(other, first)

        share, shares = shares_of_seeds(own, rivals, longer)
        return share, compared("iterations from 10 % to 90 % of the way down", everyone, [own, *rivals], shares, ",.0f")


class Rougher(CurveComparison):
    """The sum of a run's rises, in units of the baseline, exceeds another model's; both runs drop."""

    check: Literal["rougher"] = "rougher"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone = [variant, *others]
        own, *rivals = (list(self._rises(each)) for each in everyone)

        def rougher(first: float | None, other: float | None) -> float:
            return 0.0 if first is None or other is None else lower(other, first)

        share, shares = shares_of_seeds(own, rivals, rougher)
        return share, compared("all rises together, in baselines", everyone, [own, *rivals], shares)

    def _rises(self, variant: VariantData) -> list[float | None]:
        """Return the sum of each run's rises since it first reached the baseline; None for a run without a drop."""
        level = self.baseline(variant)
        sums: list[float | None] = []
        for series in self.curves(variant):
            curve = series[series.index >= max(1.0, first_below(series, AT_BASELINE * level))].tolist()
            begins = math.isfinite(first_below(series, (1 - DROP[0]) * level))
            rises = math.fsum(max(0.0, after - before) for before, after in pairwise(curve))
            sums.append(rises / level if begins else None)
        return sums


class Best(CurveComparison):
    """A result is better than another model's."""

    check: Literal["best"] = "best"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone, sign = [variant, *others], self.sign(variant)
        own, *rivals = (self.results(each) for each in everyone)
        share, shares = shares_of_seeds(own, rivals, lambda first, other: lower(sign * first, sign * other))
        return share, compared("result", everyone, [own, *rivals], shares)


class Worst(CurveComparison):
    """A result is worse than another model's, which is far better than the baseline."""

    check: Literal["worst"] = "worst"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone, sign = [variant, *others], self.sign(variant)
        own, *rivals = (self.results(each) for each in everyone)

        def worse(limit: float, first: float, other: float) -> float:
            return lower(sign * other, sign * first) if sign * other <= sign * limit else 0.0

        limits = map(self.far_better, others)
        shares = [
            share_of_pairs(own, rival, partial(worse, limit)) for rival, limit in zip(rivals, limits, strict=True)
        ]
        return lowest(shares), compared("result", everyone, [own, *rivals], shares)


class Similar(CurveComparison):
    """A result is close to another model's."""

    check: Literal["similar"] = "similar"
    difference: float = Field(ge=0, description="the largest difference, in the unit of the metric")

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone = [variant, *others]
        own, *rivals = (self.results(each) for each in everyone)
        share, shares = shares_of_seeds(own, rivals, lambda first, other: abs(first - other) <= self.difference)
        limit = Numbers("largest difference", self.difference, "g")
        return share, [*compared("result", everyone, [own, *rivals], shares), limit]


class Ratio(CurveComparison):
    """Another model's result is a certain multiple of this model's, within a quarter of the multiple."""

    check: Literal["ratio"] = "ratio"
    ratio: float = Field(gt=0, description="of the other's value to the claim's own")

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        own, *rivals = (self.results(each) for each in (variant, *others))
        share, shares = shares_of_seeds(
            own, rivals, lambda first, other: abs(other / first / self.ratio - 1) <= RATIO_TOLERANCE
        )
        ratios = [[value / first for first in own for value in numbers] for numbers in rivals]
        return share, [
            *(
                Numbers("result by the claim's own", numbers, ".2f", other.label, each)
                for other, numbers, each in zip(others, ratios, shares, strict=True)
            ),
            Numbers("published", self.ratio, "g"),
            Numbers("largest deviation", RATIO_TOLERANCE, ".0%"),
        ]


class FailsOnlyHere(CurveComparison):
    """A result is not better than a share of the baseline, while other models are far better than the baseline."""

    check: Literal["fails_only_here"] = "fails_only_here"
    share: float = Field(ge=0, description="the best result that is a failure, as a share of the baseline")

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        sign = self.sign(variant)
        limit, here = self.share * self.baseline(variant), self.results(variant)
        elsewhere = [(self.far_better(other), self.results(other)) for other in others]

        def only_here(least: float, first: float, other: float) -> float:
            return sign * first >= sign * limit and sign * other <= sign * least

        shares = [share_of_pairs(here, numbers, partial(only_here, least)) for least, numbers in elsewhere]
        return lowest(shares), [
            *compared("result", [variant, *others], [here, *(numbers for _, numbers in elsewhere)], shares),
            Numbers("limit of a failure", limit),
            *(Numbers("limit of the others", least) for least, _ in elsewhere),
        ]
