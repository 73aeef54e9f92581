"""Record a run: its events in the database, its weights in files, and the state from which a longer run continues."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

from orthobench.options.arguments import KeepWeights
from orthobench.plugins.sources import Sources
from orthobench.recurrence.backends import last_self_tests, last_used
from orthobench.store import Run, Store, WeightsRow
from orthobench.system import environment
from orthobench.training.events import Evaluation, EventSink, RunEnd, RunStart
from orthobench.training.state import Checkpoint, backend_names
from orthobench.training.trainer import Trainer
from orthobench.weights.structure import flatten
from orthobench.weights.weights_files import WeightsFolder, WeightsKind, decode, encode, sha256, weights_file_name

_logger = logging.getLogger("orthobench")


class WeightsKeeper:
    """Writes the files of one run.

    Args:
        mode: which weights to keep; the last weights are kept together with the training state.
        folder: the folder of the files.
    """

    def __init__(self, mode: KeepWeights, folder: WeightsFolder) -> None:
        self.mode, self.folder = mode, folder
        self._state: WeightsRow | None = None

    @property
    def keeps_any(self) -> bool:
        """Whether anything is kept."""
        return self.mode != "none"

    @property
    def _keeps_last(self) -> bool:
        return self.mode in ("last", "both")

    def keep_state(self, trainer: Trainer, state: Checkpoint) -> None:
        """Keep the training state before the last evaluation, which a longer run would repeat.

        A longer run runs different probes there. From this state it computes all rows that depend on its length itself.

        Raises:
            StorageError: the file cannot be written.
        """
        if self._keeps_last:
            structure, tensors = flatten(vars(state))
            self._state = self._put(trainer, "state", tensors, trainer.state.iteration, {"structure": structure})

    def keep(self, trainer: Trainer, *, finished: bool) -> list[WeightsRow]:
        """Keep the weights at the end of a run, and return the records of all its files.

        Raises:
            StorageError: a file cannot be written.
        """
        if not self.keeps_any:
            return []
        iteration, best = trainer.state.iteration, trainer.state.best
        rows, keeps_last = [], self._keeps_last
        if self.mode in ("best", "both"):
            if best is not None and trainer.state.best_weights:
                rows.append(self._put(trainer, "best", trainer.state.best_weights, best[1]))
            else:
                keeps_last = True
                why = "its tests are not finite" if best is None else "an earlier part of the run did not keep them"
                _logger.warning("run %s: the last weights are kept, not the best: %s", trainer.config.spec.key, why)
        if keeps_last:
            rows.append(self._put(trainer, "last", trainer.judged.state_dict(), iteration))
        if finished and self._keeps_last:
            state = self._state or self._earlier_state(trainer)
            rows += [] if state is None else [state]
        return rows

    def _earlier_state(self, trainer: Trainer) -> WeightsRow | None:
        """Return the record of the state that this run wrote before an interruption, if any."""
        name = weights_file_name(trainer.config.spec.key, "state")
        content = self.folder.get(name)
        if content is None or decode(content, name).facts["iteration"] != trainer.state.iteration:
            return None
        return WeightsRow("state", trainer.state.iteration, self.folder.recorded(name), sha256(content), len(content))

    def _put(
        self,
        trainer: Trainer,
        kind: WeightsKind,
        tensors: Mapping[str, Tensor],
        iteration: int,
        more: Mapping[str, Any] | None = None,
    ) -> WeightsRow:
        spec, signature = trainer.config.spec, trainer.task.signature
        facts = {
            "key": spec.key,
            "spec": asdict(spec),
            "kind": kind,
            "iteration": iteration,
            "signature": vars(signature),
            **(more or {}),
        }
        content = encode(tensors, facts)
        path = self.folder.put(weights_file_name(spec.key, kind), content)
        return WeightsRow(kind, iteration, path, sha256(content), len(content))


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
        self.run = self.store.start(start.columns(), facts, self.tags, files)

    def on_resume(self, iteration: int) -> None:
        self.store.rewind(self.run_id, iteration, self.segment_token)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        # At each evaluation, because a form is compared at its first use, long after the run has started.
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
            self.store.set_environment(self.run_id, self._facts)
