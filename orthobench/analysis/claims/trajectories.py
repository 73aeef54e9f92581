"""Claims about computed trajectories: arrays `[starts, steps + 1, 2]`."""

from __future__ import annotations

from typing import ClassVar, Literal, Self

import numpy as np
from pydantic import Field, model_validator

from orthobench.analysis.claims.claim import Claim, ClaimVerdict, Numbers
from orthobench.analysis.statistics import share_of_seeds


class PanelClaim(Claim):
    """A claim about a panel of a computed figure."""

    is_computed: ClassVar[bool] = True

    panel: str = Field(min_length=1, description="the panel that it is about")

    def judge(self, trajectories: np.ndarray) -> ClaimVerdict:
        """Check the claim on trajectories `[starts, steps + 1, 2]`. There are no seeds, so the share is 0 or 1."""
        raise NotImplementedError


class EndsAtDistance(PanelClaim):
    """Every trajectory ends at a certain distance from the origin, compared with its start."""

    check: Literal["ends_at_distance"] = "ends_at_distance"
    at_least: float | None = Field(None, ge=0, description="the lowest ratio of the last to the first distance")
    at_most: float | None = Field(None, ge=0, description="the highest ratio of the last to the first distance")

    @model_validator(mode="after")
    def _check_limits(self) -> Self:
        if self.at_least is None and self.at_most is None:
            raise ValueError("give at_least, at_most or both")
        return self

    def judge(self, trajectories: np.ndarray) -> ClaimVerdict:
        norms = np.linalg.norm(trajectories, axis=-1)
        ratios = norms[:, -1] / norms[:, 0]
        least, most = float(ratios.min()), float(ratios.max())
        limits = [("lower limit", self.at_least), ("limit", self.at_most)]
        holds = (self.at_least is None or self.at_least <= least) and (self.at_most is None or most <= self.at_most)
        measured = Numbers("distance at the end by the one at the start", [least, most])
        return share_of_seeds([holds]), [
            measured,
            *(Numbers(name, limit, "g") for name, limit in limits if limit is not None),
        ]


class FixedPoints(PanelClaim):
    """The trajectories come to rest, at a certain number of points."""

    check: Literal["fixed_points"] = "fixed_points"
    points: int = Field(ge=1, description="the number of points")

    def judge(self, trajectories: np.ndarray) -> ClaimVerdict:
        moving = float(np.linalg.norm(trajectories[:, -1] - trajectories[:, -2], axis=-1).max())
        ends = len(np.unique(trajectories[:, -1].round(3), axis=0))
        share = share_of_seeds([moving < 1e-6 and ends == self.points])
        return share, [Numbers("different ends", ends, "d"), Numbers("length of the last step", moving, ".1g")]
