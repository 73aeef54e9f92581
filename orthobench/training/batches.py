"""The batches of a run, whose examples and order depend only on the seed and the iteration."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from orthobench import seeds
from orthobench.errors import UsageError
from orthobench.task import Batch, Split, Stream, Task, TrainingSettings


class Batches:
    """A task's training set in batches. Examples that do not fill a batch at the end of an epoch are dropped.

    Attributes:
        per_epoch: number of batches in the training set.

    Raises:
        UsageError: the training set is smaller than a batch, or the settings shuffle a stream, or a stream is too short
            to be evaluated.
    """

    def __init__(self, task: Task, training: TrainingSettings, seed: int, device: torch.device) -> None:
        self.task, self.seed, self.device = task, seed, device
        self.size, self.shuffle = training.batch_size, training.shuffle
        self.stream = as_stream(task, task.train)
        self._order: tuple[int, Tensor] | None = None  # an epoch and the order of its examples
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
        """Return the batch of an iteration, counted from 0."""
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
    """Return the split as a stream if the task carries its state from batch to batch, or else None."""
    return cast(Stream, split) if task.carries_state else None


def _check_streams(task: Task, training: TrainingSettings) -> None:
    if training.shuffle:
        raise UsageError("shuffle=true: this task reads its data in order and carries its state on: give shuffle=false")
    evaluated = [split for split in (task.test, task.validation) if split is not None]
    for name, splits in (("batch_size", [task.train]), ("evaluation_batch_size", evaluated)):
        columns = getattr(training, name)
        if not all(cast(Stream, split).pieces(columns) for split in splits):
            raise UsageError(f"{name}={columns} is more columns than the data can fill: give a smaller {name}")
