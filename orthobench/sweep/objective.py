"""The objective by which a search judges a run, and the median rule that prunes a run.

The median rule (Golovin et al., Google Vizier, KDD 2017) prunes a run when its best value is worse than the median of
the best values that the finished runs had reached by the same test.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from orthobench.store import Metric, Run, Status

JUDGES = 5
"""Finished runs that it takes to cut one short."""
GRACE = 0.25
"""The share of a run in which it is not cut short: many a task begins with a plateau."""

Goal = Literal["min", "max"]


def judged(rows: Sequence[Metric]) -> tuple[str, list[float]]:
    """Of the rows of a run's metric, the split by which a search judges it, and the finite values there, in order.

    That is the validation split where the task has one, else the test split.
    """
    split = "valid" if any(row.split == "valid" for row in rows) else "test"
    values = [row.value for row in rows if row.split == split]
    return split, [value for value in values if value is not None and math.isfinite(value)]


def best_so_far(values: Sequence[float], goal: Goal) -> list[float]:
    return list(accumulate(values, min if goal == "min" else max))


def was_pruned(run: Run) -> bool:
    """Whether the run stands where it was cut short."""
    return run.status == Status.INTERRUPTED and (run.message or "").startswith("pruned")


@dataclass(frozen=True)
class Median:
    """The rule; `judges` are the finished runs' best values, test by test."""

    judges: tuple[tuple[float, ...], ...]
    goal: Goal

    def condemns(self, values: Sequence[float]) -> bool:
        """Whether the best of a run's values, test by test, is worse than the median of the judges' by its last."""
        reached = [judge[len(values) - 1] for judge in self.judges if len(judge) >= len(values) > 0]
        if len(self.judges) < JUDGES or not reached:
            return False
        median = statistics.median(reached)
        return min(values) > median if self.goal == "min" else max(values) < median
