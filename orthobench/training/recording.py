"""Record a run's events in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import torch

from orthobench import environment
from orthobench.recurrence.runtime import last_self_tests, last_used
from orthobench.store import Run, Store
from orthobench.training.events import Evaluation, EventSink, RunEnd, RunStart
from orthobench.training.trainer import backend_names

if TYPE_CHECKING:
    from orthobench.plugins.sources import Sources


class DatabaseSink(EventSink):
    """The sink that writes to the database; each event is one transaction.

    It belongs to the process that trains, and records the environment and back ends of that process.

    Args:
        sources: the source code of the run's plugins.
        tags: names that are added to the run's tags.
        cuda_graph: whether the training step runs as a CUDA graph, which is recorded for runs on CUDA.

    Attributes:
        segment_token: identifies the segment of the run in this process.
    """

    def __init__(
        self,
        store: Store,
        device: torch.device,
        sources: Sequence[Sources] = (),
        tags: Sequence[str] = (),
        cuda_graph: bool = False,
    ) -> None:
        self.cuda_graph = cuda_graph
        self.store, self.device, self.sources, self.tags = store, device, sources, tags
        self.segment_token = uuid4().hex
        self.run: Run | None = None
        self._facts: dict[str, Any] = {}

    @property
    def run_id(self) -> int:
        """The run's number in the database."""
        assert self.run is not None, "the run has not started"
        return self.run.id

    def on_start(self, start: RunStart) -> None:
        facts = self._facts = environment.describe(self.device, [sources.facts() for sources in self.sources])
        if self.device.type == "cuda":
            facts["cuda_graph"] = self.cuda_graph
        files = {digest: content for sources in self.sources for digest, content in sources.by_hash().items()}
        self.run = self.store.start(start.columns(), environment.digest(facts), facts, self.tags, files)

    def on_resume(self, iteration: int) -> None:
        self.store.rewind(self.run_id, iteration, self.segment_token)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        self._record_self_tests()
        columns = vars(evaluation.progress) | {"final_value": evaluation.value}
        self.store.log(self.run_id, evaluation.rows, evaluation.vectors, columns, backend_names(last_used()))

    def on_end(self, end: RunEnd) -> None:
        self._record_self_tests()
        columns = vars(end.progress) | {"status": end.status, "message": end.message}
        self.store.log(self.run_id, end.rows, [], columns, backend_names(last_used()), end.weights)

    def _record_self_tests(self) -> None:
        """Add the self-tests of the CUDA kernels, which take place during training, to the environment."""
        tests = last_self_tests()
        if tests is not None and tests != self._facts.get("self_tests"):
            self._facts = self._facts | {"self_tests": tests}
            self.store.set_environment(self.run_id, environment.digest(self._facts), self._facts)
