"""The objective of a search, and the median rule that prunes its runs.

The median rule prunes a run by its best value up to an evaluation. It prunes if that value is worse than the median of
the finished runs' best values up to the same evaluation. Source: Golovin and others, Google Vizier, KDD 2017.

optuna's MedianPruner is the same rule, and a test compares the two. It is not used here: workers apply the rule, and
optuna is an extra that they may lack.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from orthobench.metric import Goal
from orthobench.store import Run, Status

MIN_FINISHED = 5
"""Number of finished runs before the rule prunes any run."""
GRACE = 0.25
"""Share of a run's iterations in which it is not pruned: many tasks begin with a plateau."""


class Row(Protocol):
    """A logged value of a metric; `split` is "train", "valid" or "test"."""

    @property
    def split(self) -> str: ...
    @property
    def value(self) -> float | None: ...


def objective_values(rows: Sequence[Row]) -> tuple[str, list[float]]:
    """Return the split that a search judges a run by, and the metric's finite values on it, in order.

    The split is "valid" where the task has a validation split, else "test".

    Args:
        rows: the rows of the run's metric.
    """
    split = "valid" if any(row.split == "valid" for row in rows) else "test"
    values = [row.value for row in rows if row.split == split]
    return split, [value for value in values if value is not None and math.isfinite(value)]


def best_so_far(values: Sequence[float], goal: Goal) -> list[float]:
    """Return the best value up to each evaluation."""
    return list(accumulate(values, min if goal == "min" else max))


def was_pruned(run: Run) -> bool:
    """Return whether a search has pruned the run."""
    return run.status == Status.INTERRUPTED and (run.message or "").startswith("pruned")


@dataclass(frozen=True)
class Median:
    """The median rule.

    Attributes:
        finished: for each finished run, the best value up to each evaluation.
    """

    finished: tuple[tuple[float, ...], ...]
    goal: Goal

    def should_prune(self, values: Sequence[float]) -> bool:
        """Return whether a run with these values, one per evaluation, is worse than the median."""
        reached = [bests[len(values) - 1] for bests in self.finished if len(bests) >= len(values) > 0]
        if len(self.finished) < MIN_FINISHED or not reached:
            return False
        median = statistics.median(reached)
        return min(values) > median if self.goal == "min" else max(values) < median
