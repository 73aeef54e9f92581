"""Claims about gradients and Jacobians: vectors that probes log before, during and after training."""

from __future__ import annotations

import math
from typing import Literal

import numpy as np
from pydantic import Field

from orthobench.analysis.claims.claim import ClaimVerdict, ModelClaim, Numbers
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import share_of_seeds

HALF_ORDER = math.sqrt(10)
"""The factor by which a share may differ from the published one in either direction: half an order of magnitude."""
NEARLY_NOTHING = 1e-3
"""The share of the last gradient norm below which a norm counts as nothing.

A gradient that vanishes passes through many orders of magnitude within some steps, so the step at which it does so
depends little on the share. From 1e-4 to 1e-2 the one verdict that uses it, as of November 2026, stays the same.
"""


class VectorClaim(ModelClaim):
    """A claim about a vector that a probe logs."""

    vector: str = Field(min_length=1, description='the name under which it is logged, such as "gradient_norm/h"')

    @property
    def named(self) -> str:
        return self.vector

    def vectors(self, variant: VariantData, at_start: bool = False) -> list[np.ndarray]:
        """Return the vector of every finished run from its last or first measurement."""
        rows = variant.traces.get(self.vector)
        if rows is None:
            return []
        logged = [rows.values[rows.of_run(run.id)] for run in variant.finished]
        return [np.asarray(vectors[0 if at_start else -1], dtype=float) for vectors in logged if len(vectors)]

    def left(self, variant: VariantData, at_start: bool = False) -> list[float]:
        """Return the share of a gradient that survives the sequence, for every run.

        For norms by step, this is the first divided by the last. For a map of all states by all inputs, it is the mean
        over the largest quarter of lags divided by the mean at lag 0.
        """
        return [
            _left_of_map(vector) if self.vector.startswith("heat_map/") else float(vector[0] / vector[-1])
            for vector in self.vectors(variant, at_start)
        ]


def _left_of_map(flat: np.ndarray) -> float:
    length = math.isqrt(len(flat))
    by_lag = [np.diagonal(flat.reshape(length, length), -lag).mean() for lag in range(length)]
    return float(np.mean(by_lag[-max(1, length // 4) :]) / by_lag[0])


class Remembers(VectorClaim):
    """Much of the gradient is left over the sequence."""

    check: Literal["remembers"] = "remembers"
    share: float = Field(ge=0, description="the lowest share that is left at the far end")
    at_start: bool = Field(False, description="look at the vector before training, not after it")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        left = self.left(variant, self.at_start)
        share = share_of_seeds(part >= self.share for part in left)
        return share, [Numbers("share left over the sequence", left), Numbers("lower limit", self.share, "g")]


class Forgets(VectorClaim):
    """Little of the gradient is left over the sequence."""

    check: Literal["forgets"] = "forgets"
    share: float = Field(ge=0, description="the highest share that is left at the far end")
    at_start: bool = Field(False, description="look at the vector before training, not after it")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        left = self.left(variant, self.at_start)
        share = share_of_seeds(part <= self.share for part in left)
        return share, [Numbers("share left over the sequence", left), Numbers("limit", self.share, "g")]


class DecaysTo(VectorClaim):
    """A certain share of the gradient is left over the sequence, within half an order of magnitude."""

    check: Literal["decays_to"] = "decays_to"
    share: float = Field(gt=0, description="the share that is left at the far end")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        return _near(self.share, self.left(variant), "share left over the sequence")


class FadesTo(VectorClaim):
    """A certain share of the last step's norm is left after training, within half an order of magnitude."""

    check: Literal["fades_to"] = "fades_to"
    share: float = Field(gt=0, description="the norm after training, as a share of the one before")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        ends = [[float(vector[-1]) for vector in self.vectors(variant, at_start)] for at_start in (True, False)]
        left = [after / before if before else math.nan for before, after in zip(*ends, strict=True)]
        return _near(self.share, left, "share of the start's norm left at the last step")


def _near(printed: float, left: list[float], name: str) -> ClaimVerdict:
    """Compare the shares that are left with the published one."""
    low, high = printed / HALF_ORDER, printed * HALF_ORDER
    share = share_of_seeds(low <= part <= high for part in left)
    return share, [
        Numbers(name, left),
        Numbers("published", printed, "g"),
        Numbers("limits", low),
        Numbers("limits", high),
    ]


class ForgetsMore(VectorClaim):
    """The gradient falls to a thousandth within fewer steps back after training than before it.

    The claim counts steps because the share at the far end may be too small for a float.
    """

    check: Literal["forgets_more"] = "forgets_more"

    def judge(self, variant: VariantData) -> ClaimVerdict:
        before, after = ([_reach(norms) for norms in self.vectors(variant, at_start)] for at_start in (True, False))
        share = share_of_seeds(late < early for early, late in zip(before, after, strict=True))
        return share, [
            Numbers("steps back until a thousandth is left, before training", before, "d"),
            Numbers("after training", after, "d"),
        ]


def _reach(norms: np.ndarray) -> int:
    """Count the steps, back from the last, in which the norms `[steps]` stay above a thousandth of the last."""
    small = norms[::-1] < NEARLY_NOTHING * norms[-1]
    return int(small.argmax()) if small.any() else len(norms)


class StandsOut(VectorClaim):
    """In a map of gradients, the largest mean of an input's column is a multiple of the median over inputs."""

    check: Literal["stands_out"] = "stands_out"
    ratio: float = Field(ge=0, description="the lowest ratio of the largest mean to the median one")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        ratios = [_largest_column(vector) for vector in self.vectors(variant)]
        share = share_of_seeds(ratio >= self.ratio for ratio in ratios)
        return share, [
            Numbers("largest input's gradient by the median's", ratios),
            Numbers("lower limit", self.ratio, "g"),
        ]


def _largest_column(flat: np.ndarray) -> float:
    length = math.isqrt(len(flat))
    columns = [column[t:].mean() for t, column in enumerate(flat.reshape(length, length).T)]
    return float(max(columns) / np.median(columns))


class NearOne(VectorClaim):
    """All elements of the vector are close to 1."""

    check: Literal["near_one"] = "near_one"
    distance: float = Field(ge=0, description="the largest distance of an element from 1")

    def judge(self, variant: VariantData) -> ClaimVerdict:
        farthest = [float(abs(vector - 1).max()) for vector in self.vectors(variant)]
        share = share_of_seeds(distance <= self.distance for distance in farthest)
        return share, [Numbers("largest distance from 1", farthest), Numbers("limit", self.distance, "g")]
