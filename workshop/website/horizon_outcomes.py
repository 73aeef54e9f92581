"""What runs that track states end with, and how well predicted lengths agree with the measured horizons."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.horizons import Horizon, horizons
from orthobench.analysis.logged import Values
from orthobench.store import Status

STILL_LEARNING = 0.9
"""The loss at the end of training over that at half-time, below which a run is still learning."""


class HorizonOutcome(StrEnum):
    """What a run ends with, from the worst to the best."""

    DIVERGED = "diverged"
    FLAT = "does not fit, loss flat"
    LEARNING = "does not fit, still learning"
    LOSES = "fits and loses"
    KEEPS = "keeps"

    @property
    def rank(self) -> int:
        """The place of the outcome, from 0, the worst."""
        return [*HorizonOutcome].index(self)

    @property
    def fits(self) -> bool:
        """Whether the states are read at all training lengths."""
        return self.rank >= HorizonOutcome.LOSES.rank


def outcomes(variant: VariantData) -> list[HorizonOutcome]:
    """Return what each run of a variant ended with; runs without the probe are left out, unless they diverged."""
    losses = variant.curves_of_runs("train", "loss")
    found = [HorizonOutcome.DIVERGED for run in variant.runs if run.status == Status.DIVERGED]
    for each in horizons(variant):
        if each.fits:
            found.append(HorizonOutcome.LOSES if each.loses else HorizonOutcome.KEEPS)
        else:
            found.append(
                HorizonOutcome.LEARNING if each.run in losses and _falls(*losses[each.run]) else HorizonOutcome.FLAT
            )
    return found


def _falls(iterations: NDArray[np.int64], losses: Values) -> bool:
    """Return whether the loss still falls in the second half of training."""
    half = losses[iterations <= iterations[-1] / 2]
    return bool(len(half) and losses[-1] < STILL_LEARNING * half[-1])


def median_outcome(variant: VariantData) -> HorizonOutcome | None:
    """Return what the median seed ends with, the worse one of an even number; None without an outcome."""
    ranked = sorted(outcomes(variant), key=lambda outcome: outcome.rank)
    return ranked[(len(ranked) - 1) // 2] if ranked else None


@dataclass(frozen=True)
class Agreement:
    """How well lengths agree with the measured horizons of runs that lose the state.

    Attributes:
        runs: the number of runs that have both.
        near: the number of them whose two lengths are within a factor of two.
        error: the root mean square of the logarithm of their ratio, as a factor.
    """

    runs: int
    near: int
    error: float

    @property
    def share(self) -> float:
        """The share of runs within a factor of two."""
        return self.near / self.runs


def agreement(pairs: Sequence[tuple[Horizon, float | None]]) -> Agreement | None:
    """Compare a length for each run with its measured horizon, both within the tests; None without a length."""
    logs = np.array(
        [math.log(each.shown(length) / each.shown(each.measured)) for each, length in pairs if length is not None]
    )
    if not len(logs):
        return None
    near = int((np.abs(logs) <= math.log(2) + 1e-12).sum())
    return Agreement(len(logs), near, math.exp(math.sqrt(np.square(logs).mean())))
