"""Prune a run: apply a search's median rule to each evaluation.

A pruned run is left as an interrupted run with its checkpoint and a message; the same command continues it.
"""

from __future__ import annotations

from orthobench.store import Run, Status, Store
from orthobench.sweep.objective import GRACE, Median, objective_values
from orthobench.training.events import Observer, Point
from orthobench.training.trainer import Interrupted


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
        if GRACE * run.total_iterations <= at < run.total_iterations and self.rule.should_prune(
            objective_values(rows)[1]
        ):
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
