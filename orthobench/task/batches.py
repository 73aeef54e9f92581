"""The training set of a task, batch by batch."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from orthobench.errors import UsageError
from orthobench.task.base import Task
from orthobench.task.batch import Batch, Split, Stream
from orthobench.task.seeds import seeded_generator
from orthobench.task.settings import TrainingSettings

_AHEAD = 512  # training sequences that are drawn together


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
        self._drawn: tuple[int, int, Batch] | None = None  # an epoch, a position in it, and the batches from there on
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
        count = max(1, _AHEAD // self.size) if self.task.draws_ahead else 1
        first = position - position % count
        if self._drawn is None or self._drawn[:2] != (epoch, first):
            last = min(first + count, self.per_epoch)
            batch = Batch.of(self.task.train, self._examples(epoch, first * self.size, last * self.size))
            if count == 1:
                return batch
            self._drawn = epoch, first, batch
        start = (position - first) * self.size
        by_step = self.task.signature.readout in ("all", "positions")
        return self._drawn[2].columns(start, start + self.size, by_step)

    def _examples(self, epoch: int, start: int, stop: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(start, stop, device=self.device)
        if self._order is None or self._order[0] != epoch:
            order = torch.randperm(len(self.task.train), generator=seeded_generator(self.seed, "order", epoch))
            self._order = (epoch, order.to(self.device))
        return self._order[1][start:stop]


def as_stream(task: Task, split: Split) -> Stream | None:
    """Return the split as a stream if the task carries its state from batch to batch, or else None."""
    return cast(Stream, split) if task.carries_state else None


def _check_streams(task: Task, training: TrainingSettings) -> None:
    if training.shuffle:
        raise UsageError(
            "shuffle=true: this task reads its data in order and passes the state to the next batch: give shuffle=false"
        )
    evaluated = [split for split in (task.test, task.validation) if split is not None]
    for name, splits in (("batch_size", [task.train]), ("evaluation_batch_size", evaluated)):
        columns = getattr(training, name)
        if not all(cast(Stream, split).pieces(columns) for split in splits):
            raise UsageError(f"{name}={columns} is more columns than the data can fill: give a smaller {name}")
