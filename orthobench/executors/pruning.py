"""Prune a run: apply the rule of its search to each evaluation.

A pruned run counts as interrupted and keeps its checkpoint and a message, so the same command can resume it.
"""

from __future__ import annotations

from orthobench.planning.objective import Rule, objective_values
from orthobench.store import MetricRow, Status, Store
from orthobench.training.events import Evaluation, EventSink, RunStart
from orthobench.training.loop import Interrupted


class Pruned(Interrupted):
    """The rule has ended the run. Its checkpoint is written, and the database contains the message."""


class PruningSink(EventSink):
    """A sink that applies the rule to every evaluation, including earlier evaluations of a resumed run.

    Attributes:
        pruned_at: the iteration at which the rule ended the run.
    """

    def __init__(self, rule: Rule, store: Store, key: str) -> None:
        self.rule, self.store, self.key = rule, store, key
        self.pruned_at: int | None = None
        self.rows: list[MetricRow] = []
        existing_run = store.find(key)
        if existing_run is not None:
            self.metric, self.total_iterations = existing_run.metric, existing_run.total_iterations
            self.rows += store.metrics([existing_run.id], name=existing_run.metric)
            if not Status(existing_run.status).is_final:
                self._apply()

    def on_start(self, start: RunStart) -> None:
        self.metric, self.total_iterations = start.metric, start.total_iterations

    def on_resume(self, iteration: int) -> None:
        self.rows = [row for row in self.rows if row.iteration <= iteration]

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self.rows += [row for row in evaluation.rows if row.name == self.metric and row.split in ("test", "valid")]
        if not evaluation.solved:  # a solved run is over, so there is nothing to prune
            self._apply()

    def raise_if_pruned(self) -> None:
        """If the rule has ended the run, record this in the database and raise `Pruned`.

        Raises:
            Pruned: the rule has ended the run.
        """
        if self.pruned_at is None:
            return
        message = f"{self.rule.did} at iteration {self.pruned_at}"
        run = self.store.find(self.key)
        assert run is not None
        self.store.update(run.id, {"status": Status.INTERRUPTED, "message": message})
        raise Pruned(message)

    def _apply(self) -> None:
        iteration = max((row.iteration for row in self.rows), default=0)
        in_range = self.rule.from_share * self.total_iterations <= iteration < self.total_iterations
        if in_range and self.rule.should_prune(objective_values(self.rows)[1]):
            self.pruned_at = iteration
