"""The batches that a run trains on: which examples, in which order, is a function of seed and iteration alone."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from orthobench import seeds
from orthobench.errors import UsageError
from orthobench.task import Batch, Split, Stream, Task, TrainingSettings


class Batches:
    """A task's training set, batch by batch. What does not fill a batch at an epoch's end is left out.

    Attributes: `per_epoch`, how many batches the training set makes.

    Raises:
        UsageError: they are none; or a stream would have to be read in an order not its own, or is too short to be
            tested.
    """

    def __init__(self, task: Task, training: TrainingSettings, seed: int, device: torch.device) -> None:
        self.task, self.seed, self.device = task, seed, device
        self.size, self.shuffle = training.batch_size, training.shuffle
        self.stream = as_stream(task, task.train)
        self._order: tuple[int, Tensor] | None = None  # of the examples, for one epoch
        if self.stream is None:
            if self.size > len(task.train):
                raise UsageError(
                    f"batch_size={self.size} is more than the training set of {len(task.train)}: "
                    "give a smaller batch_size"
                )
            self.per_epoch = len(task.train) // self.size
        else:
            _check_streams(task, training)
            self.per_epoch = self.stream.pieces(self.size)

    def at(self, iteration: int) -> Batch:
        """The batch to train on after so many iterations."""
        epoch, position = divmod(iteration, self.per_epoch)
        self.task.epoch = epoch
        if self.stream is not None:
            return self.stream.piece(position, self.size)
        return self.task.train.batch(self._examples(epoch, position * self.size))

    def _examples(self, epoch: int, start: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(start, start + self.size, device=self.device)
        if self._order is None or self._order[0] != epoch:
            order = torch.randperm(len(self.task.train), generator=seeds.generator(self.seed, "order", epoch))
            self._order = (epoch, order.to(self.device))
        return self._order[1][start : start + self.size]


def as_stream(task: Task, split: Split) -> Stream | None:
    """A split as a stream, if the task's state is carried on."""
    return cast(Stream, split) if task.carries_state else None


def _check_streams(task: Task, training: TrainingSettings) -> None:
    if training.shuffle:
        raise UsageError("shuffle=true: the data is read in order, with the state carried on: give shuffle=false")
    tested = [part for part in (task.test, task.validation) if part is not None]
    for name, splits in (("batch_size", [task.train]), ("evaluation_batch_size", tested)):
        columns = getattr(training, name)
        if not all(cast(Stream, split).pieces(columns) for split in splits):
            raise UsageError(f"{name}={columns} is more columns than the data can fill: give a smaller {name}")
