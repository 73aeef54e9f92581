"""Keep the weights of a run that ends, and the state from which a longer run continues."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from torch import Tensor

from orthobench.arguments import KeepWeights
from orthobench.store import WeightsRow
from orthobench.training.trainer import Checkpoint, Trainer
from orthobench.weights.content import Kind, decode, encode, file_name, sha256
from orthobench.weights.folder import WeightsFolder

_logger = logging.getLogger("orthobench")


class WeightsKeeper:
    """Writes the files of one run.

    Args:
        mode: which weights to keep; the last weights are kept together with the training state.
        folder: the folder of the files; None keeps nothing.
    """

    def __init__(self, mode: KeepWeights = "none", folder: WeightsFolder | None = None) -> None:
        self.mode, self.folder = mode, folder
        self._state: WeightsRow | None = None

    @property
    def keeps_any(self) -> bool:
        """Whether anything is kept."""
        return self.mode != "none" and self.folder is not None

    @property
    def _keeps_last(self) -> bool:
        return self.keeps_any and self.mode in ("last", "both")

    def keep_state(self, trainer: Trainer, state: Checkpoint) -> None:
        """Keep the training state before the last evaluation, which a longer run would repeat.

        A longer run runs different probes there. From this state it computes all rows that depend on its length itself.

        Raises:
            StorageError: the file cannot be written.
        """
        if self._keeps_last:
            from orthobench.weights.structure import flatten

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
            rows.append(self._put(trainer, "last", trainer.model.state_dict(), iteration))
        if finished and self._keeps_last:
            state = self._state or self._earlier_state(trainer)
            rows += [] if state is None else [state]
        return rows

    def _earlier_state(self, trainer: Trainer) -> WeightsRow | None:
        """Return the record of the state that this run wrote before an interruption, if any."""
        assert self.folder is not None
        name = file_name(trainer.config.spec.key, "state")
        content = self.folder.get(name)
        if content is None or decode(content, name).facts["iteration"] != trainer.state.iteration:
            return None
        return WeightsRow("state", trainer.state.iteration, self.folder.recorded(name), sha256(content), len(content))

    def _put(
        self,
        trainer: Trainer,
        kind: Kind,
        tensors: Mapping[str, Tensor],
        iteration: int,
        more: Mapping[str, Any] | None = None,
    ) -> WeightsRow:
        assert self.folder is not None
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
        path = self.folder.put(file_name(spec.key, kind), content)
        return WeightsRow(kind, iteration, path, sha256(content), len(content))
