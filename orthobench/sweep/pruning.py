"""How a search judges a run, and the rule by which it cuts one short.

The median rule (Golovin et al., Google Vizier, KDD 2017): a run is cut short when the best it has reached is worse than
the median of the best that the finished runs had reached by the same test. It is left as any interrupted run is, with
its checkpoint and with a message that says so, and goes on when it is asked for.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal

from orthobench.observer import Observer, Point
from orthobench.store import Metric, Run, Status, Store
from orthobench.trainer import Interrupted

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


class Pruned(Interrupted):
    """The rule has ended the run; its checkpoint is written, and the message is in the database."""


class Watched:
    """An observer that looks on for another, and says where the rule, if there is one, ends the run."""

    def __init__(self, observer: Observer, rule: Median | None, store: Store) -> None:
        self.observer, self.rule, self.store = observer, rule, store
        self.pruned_at: int | None = None

    def started(self, run: Run) -> None:
        self.run = run
        self.observer.started(run)

    def iterated(self, iteration: int) -> None:
        self.observer.iterated(iteration)

    def tested(self, point: Point) -> None:
        self.observer.tested(point)
        self.judge(self.run)

    def concluding(self, done: int, total: int) -> None:
        self.observer.concluding(done, total)

    def judge(self, run: Run) -> None:
        """Apply the rule to what the database has of the run."""
        self.run = run
        if self.rule is None:
            return
        rows = self.store.metrics([run.id], name=run.metric)
        at = max((row.iteration for row in rows), default=0)
        if GRACE * run.total_iterations <= at < run.total_iterations and self.rule.condemns(judged(rows)[1]):
            self.pruned_at = at

    def leave_word(self) -> None:
        """If the rule has ended the run, say so in the database.

        Raises:
            Pruned: it has.
        """
        if self.pruned_at is not None:
            message = f"pruned at iteration {self.pruned_at}"
            self.store.update(self.run.id, {"status": Status.INTERRUPTED, "message": message})
            raise Pruned(message)
