"""Sweeps within a time budget: which runs fit, and when the last run may start."""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from orthobench.planning.estimate import Estimate
from orthobench.planning.sweep_runs import PlannedRun


def by_priority(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """Return the pending runs: interrupted ones first, failed ones last, and the others in the order of the plan."""
    rank = {"interrupted": 0, "failed": 2}
    return sorted((run for run in planned if run.is_pending), key=lambda run: rank.get(run.state, 1))


class Budget:
    """A number of seconds, counted from its creation."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.start_time = clock()

    @property
    def left(self) -> float:
        """The seconds that are left; negative once the budget is overspent."""
        return self.seconds - (self.clock() - self.start_time)

    def is_spent(self) -> bool:
        return self.left <= 0


def span(seconds: Iterable[float], at_once: int) -> float:
    """Return the seconds until the last run ends if runs start in this order and `at_once` train at the same time."""
    free_at = [0.0] * at_once
    for duration in seconds:
        heapq.heapreplace(free_at, free_at[0] + duration)
    return max(free_at)


def runs_within(
    planned: Sequence[PlannedRun], estimates: Mapping[str, Estimate], budget: float, at_once: int = 1
) -> list[PlannedRun]:
    """Return the runs that fit into a budget, by priority.

    A run without an estimate is left out, and so is a run that does not fit; a shorter run after it may still fit.

    Args:
        estimates: the estimate of each run, by its key.
        budget: in seconds.
        at_once: number of runs that train at the same time.
    """
    free_at = [0.0] * at_once
    fitting = []
    for run in by_priority(planned):
        seconds = estimates[run.config.spec.key].seconds
        if seconds is not None and free_at[0] + seconds <= budget:
            heapq.heapreplace(free_at, free_at[0] + seconds)
            fitting.append(run)
    return fitting
