"""Claims about how the ends of a model's curves depend on one of its settings."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import numpy as np
from pydantic import Field

from orthobench.analysis.claims.claim import ClaimVerdict, Numbers
from orthobench.analysis.claims.curve_shapes import CurveClaim
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import share_of_seeds

BySetting = Sequence[tuple[float, VariantData]]
"""All variants that a claim is about, each with its value of the setting."""
LOW = 0.5
"""The lowest end must be at most this many times the baseline, because without a drop there is nothing to compare."""


class OverSetting(CurveClaim):
    """A claim about all its variants together, for a metric whose lower values are better."""

    over: str = Field(min_length=1, description="the setting in which its experiments differ, a number")

    def judge(self, by_setting: BySetting) -> ClaimVerdict:
        """Check the claim on each seed that all variants have."""
        raise NotImplementedError

    def ends_of_seeds(self, by_setting: BySetting) -> list[list[tuple[float, float]]]:
        """Return, for each seed, every variant's setting and end, as a share of the baseline."""
        split, name = self.logged(by_setting[0][1])
        by_seed: dict[int, list[tuple[float, float]]] = {}
        for setting, variant in by_setting:
            seeds = {run.id: run.seed for run in variant.finished}
            for run, end in variant.ends_of(split, name).items():
                by_seed.setdefault(seeds[run], []).append((setting, self.share_of_baseline(end.value, variant)))
        return [pairs for _, pairs in sorted(by_seed.items()) if len(pairs) == len(by_setting)]

    def ends_by_setting(self, by_setting: BySetting) -> list[Numbers]:
        """Return the ends of each variant, in the order of the setting."""
        ordered = sorted(by_setting, key=lambda pair: pair[0])
        return [Numbers("ends", self.ends(variant), of=f"{size:g}") for size, variant in ordered]


class ImprovesWith(OverSetting):
    """Ends fall as the setting grows, and the lowest is low."""

    check: Literal["improves_with"] = "improves_with"
    correlation: float = Field(ge=-1, le=1, description="the highest rank correlation (Spearman) of end and setting")

    def judge(self, by_setting: BySetting) -> ClaimVerdict:
        from scipy.stats import spearmanr

        seeds = self.ends_of_seeds(by_setting)
        correlations = [float(spearmanr(np.array(pairs)).statistic) if len(pairs) > 2 else math.nan for pairs in seeds]
        share = share_of_seeds(
            correlation <= self.correlation and min(end for _, end in pairs) <= LOW
            for correlation, pairs in zip(correlations, seeds, strict=True)
        )
        measured = [Numbers("rank correlation", correlations, ".2f"), Numbers("limit", self.correlation, "g")]
        return share, [*measured, *self.ends_by_setting(by_setting)]


class NearBest(OverSetting):
    """Many variants end within a tenth of the baseline of the best, which is low."""

    check: Literal["near_best"] = "near_best"
    share: float = Field(ge=0, le=1, description="the lowest share of the variants")

    def judge(self, by_setting: BySetting) -> ClaimVerdict:
        near, lows = [], []
        for pairs in self.ends_of_seeds(by_setting):
            least = min(end for _, end in pairs)
            near.append(sum(end <= least + 0.1 for _, end in pairs) / len(pairs))
            lows.append(least)
        share = share_of_seeds(part >= self.share and least <= LOW for part, least in zip(near, lows, strict=True))
        measured = [Numbers("share within a tenth of the baseline of the best", near, ".0%")]
        return share, [*measured, Numbers("lower limit", self.share, ".0%"), *self.ends_by_setting(by_setting)]
