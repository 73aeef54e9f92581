"""The objective of a search, and the median rule that prunes its runs.

The median rule compares the best value of a run up to an evaluation with the best values of the finished runs up to the
same evaluation. It prunes the run if its value is worse than their median. Source: Golovin et al., Google Vizier, KDD
2017.

optuna's MedianPruner implements the same rule, and a test compares the two. It is not used here because workers apply
the rule, and optuna is an optional dependency that they may lack.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import ClassVar, Protocol

from orthobench.metric import Goal
from orthobench.store import Run, Status

MIN_FINISHED = 5
"""The number of finished runs that the rule needs before it prunes a run."""
GRACE = 0.25
"""The share of a run's iterations during which it is not pruned, because many tasks begin with a plateau."""


class LoggedValue(Protocol):
    """A logged value of a metric; `split` is "train", "valid" or "test"."""

    @property
    def split(self) -> str: ...
    @property
    def value(self) -> float | None: ...


def objective_values(rows: Sequence[LoggedValue]) -> tuple[str, list[float]]:
    """Return the split by which a search judges a run, and the finite values of the metric on it, in order.

    The split is "valid" if the task has a validation split, else "test".

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
    return run.status == Status.INTERRUPTED and (run.message or "").startswith(MedianRule.did)


class Rule(Protocol):
    """A rule that ends runs early.

    Attributes:
        from_share: the share of a run's iterations from which on it is asked.
        did: what it did to a run, as in "pruned at iteration 40".
    """

    did: ClassVar[str]

    @property
    def from_share(self) -> float: ...

    def should_prune(self, values: Sequence[float]) -> bool:
        """Return whether a run with these values of its metric, one per evaluation, ends here."""


@dataclass(frozen=True)
class Pause:
    """A run pauses at the first evaluation after a share of its iterations, until its search decides about it."""

    did: ClassVar[str] = "paused"

    from_share: float

    def should_prune(self, values: Sequence[float]) -> bool:
        return True


@dataclass(frozen=True)
class MedianRule:
    """The median rule.

    Attributes:
        finished: the best value up to each evaluation, for each finished run.
    """

    did: ClassVar[str] = "pruned"

    finished: tuple[tuple[float, ...], ...]
    goal: Goal
    from_share: float = GRACE

    def should_prune(self, values: Sequence[float]) -> bool:
        """Return whether a run with these values, one per evaluation, is worse than the median."""
        reached = [bests[len(values) - 1] for bests in self.finished if len(bests) >= len(values) > 0]
        if len(self.finished) < MIN_FINISHED or not reached:
            return False
        median = statistics.median(reached)
        return min(values) > median if self.goal == "min" else max(values) < median
