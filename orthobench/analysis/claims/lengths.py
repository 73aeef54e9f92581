"""Claims about the scores over the length of the test sequences, and about the horizons of tracking, after training."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, Self

import pandas as pd
from pydantic import Field, model_validator

from orthobench.analysis.by_length import HELD, as_scores, last_by_length
from orthobench.analysis.claims.claim import (
    ClaimVerdict,
    Comparing,
    ModelClaim,
    Numbers,
    compared,
    shares_of_seeds,
)
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.horizons import Horizon, horizons
from orthobench.analysis.statistics import lower, share_of_seeds

HALF, LOST = 0.5, 0.1
"""The scores down to which a length is reached, and up to which the score counts as lost.

Lost is not 0, because a model that guesses differs from the best constant by chance. No result has tested either
choice: in November 2026, results.db decides none of the claims that use them.
"""


def _scores(variant: VariantData) -> list[pd.Series]:
    """Return the score by length of every finished run that has one."""
    measured = last_by_length(variant)
    return [as_scores(measured[run.id], variant) for run in variant.finished if run.id in measured]


class HoldsLengths(ModelClaim):
    """The score is at least 0.9 up to one length, and at most 0.1 from a greater length on."""

    check: Literal["holds_lengths"] = "holds_lengths"
    up_to: int | None = Field(
        None, ge=1, description="the greatest length that is held, in elements of the sequence; none: the shortest"
    )
    lost_from: int | None = Field(None, ge=1, description="the length from which on the score is lost; none: never")

    @model_validator(mode="after")
    def _check_lengths(self) -> Self:
        if self.up_to is None and self.lost_from is None:
            raise ValueError("give up_to, lost_from or both")
        if self.up_to and self.lost_from and self.lost_from <= self.up_to:
            raise ValueError("lost_from should be greater than up_to")
        return self

    def judge(self, variant: VariantData) -> ClaimVerdict:
        """Check the scores; the claim does not hold for a run that was not tested up to these lengths."""
        scores = _scores(variant)
        lows = [self._lowest(score) for score in scores]
        held = [Numbers("lowest score up to the length to be held", lows), Numbers("lower limit", HELD)]
        if self.lost_from is None:
            return share_of_seeds(low >= HELD for low in lows), held
        highs = [float(score[score.index >= self.lost_from].max()) for score in scores]
        share = share_of_seeds(low >= HELD and high <= LOST for low, high in zip(lows, highs, strict=True))
        return share, [*held, Numbers("highest score from the length to be lost", highs), Numbers("limit", LOST)]

    def _lowest(self, score: pd.Series) -> float:
        """Return the lowest score of a run up to the length; NaN for a run that was not tested that far."""
        up_to = self.up_to or score.index[0]
        return float(score[score.index <= up_to].min()) if score.index[-1] >= up_to else math.nan


class ReachesFarther(Comparing):
    """A run keeps half of the score up to a greater length than another model's run."""

    check: Literal["reaches_farther"] = "reaches_farther"

    def judge(self, variant: VariantData, others: Sequence[VariantData]) -> ClaimVerdict:
        everyone = [variant, *others]
        own, *rivals = reaches = [[reach(score) for score in _scores(each)] for each in everyone]
        share, shares = shares_of_seeds(own, rivals, lambda first, other: lower(other, first))
        return share, compared("first length with less than half of the score", everyone, reaches, shares)


class Tracks(ModelClaim):
    """A run reads the states at all training lengths, and up to one length, or no longer up to another."""

    check: Literal["tracks"] = "tracks"
    up_to: int | None = Field(
        None, ge=1, description="a length up to which the states are read; none: that of training"
    )
    lost_by: int | None = Field(None, ge=2, description="a length up to which they are not; none: no such length")

    @property
    def named(self) -> str:
        return "the probe error_control"

    def judge(self, variant: VariantData) -> ClaimVerdict:
        """Check the measured horizon; a length beyond the longest test is not reached, nor one by which it is lost."""
        found = horizons(variant)
        reached = [each.shown(each.measured) for each in found]
        share = share_of_seeds(self._holds(each) for each in found)
        return share, [Numbers("greatest tested length up to which states are read", reached)]

    def _holds(self, found: Horizon) -> bool:
        reaches = found.measured >= (self.up_to or 0) and found.longest >= (self.up_to or 0)
        loses = self.lost_by is None or (found.measured < self.lost_by and found.longest >= self.lost_by)
        return found.fits and reaches and loses


class PredictsHorizon(ModelClaim):
    """For a run that fits the training lengths, the horizon implied by the ratio is near the measured one."""

    check: Literal["predicts_horizon"] = "predicts_horizon"
    factor: float = Field(2.0, gt=1, description="the largest ratio of the two horizons")

    @property
    def named(self) -> str:
        return "the probe error_control"

    def judge(self, variant: VariantData) -> ClaimVerdict:
        """Check both horizons; beyond the longest test, they count as equal to it."""
        found = horizons(variant)
        ratios = [each.shown(each.predicted) / each.shown(each.measured) for each in found]
        near = [1 / self.factor <= ratio <= self.factor for ratio in ratios]
        share = share_of_seeds(each.fits and is_near for each, is_near in zip(found, near, strict=True))
        return share, [
            Numbers("implied horizon by the measured one", ratios),
            Numbers("largest factor", self.factor, "g"),
        ]


def reach(score: pd.Series) -> float:
    """Return the first length with a score below one half, or infinity if there is none."""
    return float(min(score.index[score < HALF], default=math.inf))
