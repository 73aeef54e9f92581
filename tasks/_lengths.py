"""Splits whose sequences have several lengths and are generated batch by batch from the examples' numbers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from orthobench.task import Batch, Split, SyntheticSettings

from ._draws import Draws

LENGTH_CHANNEL = 15


class LengthSettings(SyntheticSettings):
    """Settings of generated data whose tests have other lengths than training."""

    validation_lengths: Literal["training", "test"] = Field(
        "training",
        description="lengths of the validation sequences; test: those of the tests, so that a search and the end of a "
        "solved run judge what is scored",
        json_schema_extra={"neutral": "training"},
    )


class GeneratedSplit(Split, ABC):
    """`size` sequences whose lengths are drawn from a list, each entry equally likely.

    A training batch has as many steps as the longest length, so its shape never changes. Test sequences are sorted by
    length, and a test batch has as many steps as its longest sequence.

    Args:
        lengths: the lengths in valid steps; a length may occur several times.
        draws: the random numbers.
        sorted_by_length: whether the split is for tests.
        equal_shares: give each length the same number of test sequences, instead of drawing the lengths.
        same_length: the number of successive training sequences that share a length.
        epoch: returns the number of the epoch, if each has its own sequences; None: all epochs have the same sequences.
    """

    def __init__(
        self,
        size: int,
        lengths: Sequence[int],
        draws: Draws,
        device: torch.device,
        *,
        sorted_by_length: bool = False,
        equal_shares: bool = False,
        same_length: int = 1,
        epoch: Callable[[], int] | None = None,
    ) -> None:
        self.size, self.draws, self.same_length, self.epoch = size, draws, same_length, epoch
        self.lengths = torch.tensor(sorted(lengths), device=device)
        self.longest = max(lengths)
        self.sorted: Tensor | None = None
        if sorted_by_length:
            examples = torch.arange(size, device=device)
            count = len(lengths)
            choices = examples * count // size if equal_shares else self._choices(examples)
            self.sorted = self.lengths[choices].sort().values

    def __len__(self) -> int:
        return self.size

    def batch(self, examples: Tensor) -> Batch:
        numbers = examples if self.epoch is None else examples + self.epoch() * self.size
        if self.sorted is None:
            return self.make(numbers, self.lengths[self._choices(numbers)], self.longest)
        lengths = self.sorted[examples]
        return self.make(numbers, lengths, int(lengths.max()))

    @abstractmethod
    def make(self, examples: Tensor, lengths: Tensor, steps: int) -> Batch:
        """Return the sequences with these numbers and lengths, both `[B]`, padded to a number of steps."""

    def _choices(self, numbers: Tensor) -> Tensor:
        return self.draws.column(len(self.lengths), numbers // self.same_length, channel=LENGTH_CHANNEL)
