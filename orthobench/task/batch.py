"""A batch, and what a task has to offer so that batches can be drawn from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

from torch import Tensor

from orthobench.errors import wrong_value
from orthobench.model import Model, State
from orthobench.recurrence import GradientTrace


@dataclass(frozen=True)
class Batch:
    """Inputs and the targets that the task's loss expects.

    Attributes:
        inputs: `[time, batch, features]`, or symbol numbers `[time, batch]` if the signature has `tokens`.
        lengths: the number of valid steps of each sequence, int64 `[batch]`, at least 1. Later steps are padding.
            None: all steps are valid.
        positions: the steps whose outputs are read with readout "positions", int64 `[answers, batch]`. A sequence with
            fewer answers repeats one; its targets determine which answers count.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    positions: Tensor | None = None

    def through(
        self, model: Model, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        """Return the outputs of a model for this batch, and its final state."""
        result: tuple[Tensor, State] = model(
            self.inputs, state, trace=trace, lengths=self.lengths, positions=self.positions
        )
        return result

    @staticmethod
    def of(split: Split, examples: Tensor) -> Batch:
        """Return the batch of these examples of a split.

        Raises:
            TypeError: the split returns something else.
        """
        batch: Any = split.batch(examples)
        if not isinstance(batch, Batch):
            raise wrong_value(split, "batch", batch, "Batch(inputs, targets)")
        return batch

    def columns(self, first: int, last: int, outputs_by_step: bool) -> Batch:
        """Return the batch of the sequences first to last - 1.

        Args:
            outputs_by_step: whether the targets are `[steps, batch]`, not `[batch]`.
        """
        return Batch(
            self.inputs[:, first:last].contiguous(),
            self.targets[:, first:last] if outputs_by_step else self.targets[first:last],
            None if self.lengths is None else self.lengths[first:last],
            None if self.positions is None else self.positions[:, first:last],
        )


class Split(Protocol):
    """A part of the data; the trainer selects batches by example numbers."""

    def __len__(self) -> int: ...

    def batch(self, examples: Tensor) -> Batch:
        """Return the examples with these numbers `[batch]`, on the task's device."""


class Stream(Split, Protocol):
    """A split that is one text, cut into equal columns without the remainder, and read from top to bottom."""

    def pieces(self, columns: int) -> int:
        """Return the number of batches with this many columns; 0 if the split is too short."""

    def piece(self, position: int, columns: int) -> Batch:
        """Return the batch at a position, `[time, columns, features]`; it continues the previous one."""
