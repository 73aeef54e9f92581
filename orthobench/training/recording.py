"""Record a run's events in the database."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from orthobench import environment
from orthobench.store import Run, Store
from orthobench.training.events import Evaluation, EventSink, RunEnd, RunStart


class DatabaseSink(EventSink):
    """The sink that writes to the database; each event is one transaction.

    Args:
        tags: names added to those that the run has.
    """

    def __init__(self, store: Store, device: torch.device, tags: Sequence[str] = ()) -> None:
        self.store, self.device, self.tags = store, device, tags
        self.run: Run | None = None

    @property
    def run_id(self) -> int:
        """The run's number in the database."""
        assert self.run is not None, "the run has not started"
        return self.run.id

    def on_start(self, start: RunStart) -> None:
        facts = environment.describe(self.device)
        self.run = self.store.start(start.columns(), environment.digest(facts), facts, self.tags)

    def on_resume(self, iteration: int) -> None:
        self.store.rewind(self.run_id, iteration)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        columns = vars(evaluation.progress) | {"final_value": evaluation.value}
        self.store.log(self.run_id, evaluation.rows, evaluation.vectors, columns)

    def on_end(self, end: RunEnd) -> None:
        columns = vars(end.progress) | {"status": end.status, "message": end.message}
        self.store.log(self.run_id, end.rows, [], columns)
