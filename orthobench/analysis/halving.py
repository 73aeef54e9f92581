"""Successive halving: which trials of a search go on, and which one wins, from their validation curves alone.

All trials train up to the first rung, a share of their iterations, and pause. The better half trains on to the next
rung, and so on; the trials that pass the last rung train to the end, and the best of them wins. Ranks compare the end
of each curve up to the rung (`curve_end`), as tables compare tests. A diverged trial is the worst, and equal trials
keep the order of their numbers. So the same curves give the same winner, whatever interrupted the search.

K. Jamieson, A. Talwalkar, "Non-stochastic Best Arm Identification and Hyperparameter Optimization", AISTATS 2016.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from orthobench.analysis.statistics import curve_end
from orthobench.store import Run, Status

JUDGE = "valid"
"""The split whose curves decide."""
RUNGS = (0.25, 0.5)
"""The shares of the iterations at which the worse half of the trials stops."""
FEWEST_TRIALS = 8
"""The fewest trials of a search: four learning rates, each with two for the recurrent matrix."""


Edge = Literal["highest", "lowest", ""]
"""Which rate of its search a winner has; beyond the highest or the lowest one may be a better rate."""


def edge_of(rate: float, rates: Sequence[float]) -> Edge:
    """Return whether a rate is the highest or the lowest of several different ones."""
    if rate == max(rates) != min(rates):
        return "highest"
    return "lowest" if rate == min(rates) != max(rates) else ""


@dataclass(frozen=True)
class TrialCurve:
    """A trial's run and its validation curve, as (iteration, value); without a run, it has not started.

    Attributes:
        number: the place of the trial in its search, counted from 0.
    """

    number: int
    run: Run | None = None
    values: Sequence[tuple[int, float]] = field(default=(), repr=False)

    def has_reached(self, share: float) -> bool:
        """Return whether the trial has a value at this share of its iterations, or has ended."""
        if self.run is None:
            return False
        if Status(self.run.status).is_final:
            return True
        reached = max((iteration for iteration, _ in self.values), default=0)
        return share < 1 and reached >= share * self.run.total_iterations

    def cost(self, share: float, sign: float) -> float:
        """Return the end of the curve up to this share, so that the lowest is the best; infinity if it diverged.

        Args:
            sign: as for `Metric.sign`.
        """
        if self.run is None or self.run.status == Status.DIVERGED:
            return math.inf
        limit = share * self.run.total_iterations
        inside = next((number for number, (at, _) in enumerate(self.values, 1) if at >= limit), len(self.values))
        own = [value for _, value in self.values[:inside]]
        end = curve_end(own[-1:] if self.run.solved_at is not None else own)
        return math.inf if end is None or math.isnan(end.value) else sign * end.value


@dataclass(frozen=True)
class Halving:
    """A search at its present state.

    Attributes:
        contenders: the trials that train up to each rung, all trials first; the last entry is the present one.
        share: the share of the iterations up to which the present contenders train.
        waiting: the contenders that have not reached it.
        winner: the trial that won; None while contenders wait.
    """

    contenders: list[list[TrialCurve]]
    share: float
    waiting: list[TrialCurve]
    winner: TrialCurve | None


def halve(trials: Sequence[TrialCurve], sign: float) -> Halving:
    """Return the state of a search.

    Args:
        sign: makes lower values better, as `Metric.sign` does.
    """
    contenders = [sorted(trials, key=lambda trial: trial.number)]
    for share in (*RUNGS, 1.0):
        present = contenders[-1]
        if waiting := [trial for trial in present if not trial.has_reached(share)]:
            return Halving(contenders, share, waiting, None)
        ranked = sorted(present, key=lambda trial: (trial.cost(share, sign), trial.number))
        if share == 1:
            return Halving(contenders, share, [], ranked[0])
        contenders.append(sorted(ranked[: math.ceil(len(ranked) / 2)], key=lambda trial: trial.number))
    raise AssertionError("the last share is 1")


def full_runs(trials: int) -> float:
    """Return how many whole runs a search of this many trials takes, if none ends before its rung."""
    total, before = 0.0, 0.0
    for share in (*RUNGS, 1.0):
        total += trials * (share - before)
        trials, before = math.ceil(trials / 2), share
    return total
