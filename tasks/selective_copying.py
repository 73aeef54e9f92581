"""Selective copying (Gu and Dao 2024): tokens at random places among blanks, to be repeated in order at the end.

A sequence has T tokens, M of which are data at distinct random places, and the rest blanks. M markers follow. The
output at the i-th marker should be the i-th data token. The places differ between sequences, so a recurrence whose step
does not depend on the input cannot solve the task. Tokens are blank (0), the data (1 to V - 2) and the marker (V - 1).
Loss: mean cross-entropy at the markers, in nats.

The layout is that of `src/dataloaders/copying.py` in state-spaces/s4 with `variable`, by the same authors. The paper
trains for 400 000 batches of 64 new sequences, which are one epoch here.
"""

from __future__ import annotations

import math
from typing import Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import MULTIPLES, Batch, Metric, ScalableSettings, Size, Split, constant_of

from ._answers import AnswerTask
from ._draws import OFFSETS, Draws

BLANK = 0
PLACES, TOKENS = range(2)
"""Channels of the draws."""
ACCURACY = Metric("accuracy", "max", label="accuracy of the copied tokens", is_fraction=True)


class SelectiveCopyingSettings(ScalableSettings):
    sequence_length: int = Field(
        4096,
        ge=2,
        lt=OFFSETS // max(MULTIPLES),
        description="T, number of tokens before the markers; the paper's 4096",
    )
    copied: Size = Field(16, description="M, number of tokens to copy; at most T")
    vocabulary: int = Field(16, ge=4, description="V, number of tokens, with the blank and the marker")
    train_size: Size = Field(25_600_000, description="training sequences; 400 000 batches of 64 in the paper")
    test_size: Size = Field(1000, description="test sequences")

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.copied > self.sequence_length:
            raise ValueError(f"copied={self.copied} is more than sequence_length={self.sequence_length}: give fewer")
        return self


class SelectiveCopying(AnswerTask):
    version = 1
    title = "selective copying"
    cites = "gu2024"
    state_matters = True
    Settings = SelectiveCopyingSettings
    metrics = (ACCURACY, Metric("cross_entropy", "min", "nats", "cross-entropy"), *map(ACCURACY.at_multiple, MULTIPLES))
    longer_metric = "accuracy"
    protocol = {
        "batch_size": 64,
        "epochs": 1,
        "evaluate_every": 5000,
        "evaluation_batch_size": 100,
        "shuffle": False,
        "optimizer": "adam",
        "learning_rate": 1e-4,
    }
    quick = {
        "sequence_length": 16,
        "copied": 3,
        "vocabulary": 6,
        "train_size": 64 * 1500,
        "test_size": 500,
        "evaluate_every": 250,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "min_lstm",
        "sequence_length": 10,
        "copied": 2,
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 4,
        "evaluate_every": 20,
        "hidden_size": 16,
        "learning_rate": 0.02,
        "shuffle": True,
        "clip_value": 0.1,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: SelectiveCopyingSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(settings.vocabulary, settings.vocabulary, "positions", tokens=True)

        def split(part: str, size: int, settings: SelectiveCopyingSettings) -> SelectiveCopyingSplit:
            return SelectiveCopyingSplit(settings, size, Draws(seed, "selective_copying", part), device)

        self.generate(settings, split)

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: SelectiveCopyingSettings) -> dict[str, float]:
        """The scores of guessing a data token at random."""
        tokens = settings.vocabulary - 2
        names = ["accuracy", *(f"accuracy_{multiple}t" for multiple in settings.longer())]
        return dict.fromkeys(names, 1 / tokens) | {"cross_entropy": math.log(tokens)}


class SelectiveCopyingSplit(Split):
    """`size` sequences, generated from their numbers."""

    def __init__(self, settings: SelectiveCopyingSettings, size: int, draws: Draws, device: torch.device) -> None:
        self.settings, self.size, self.draws, self.device = settings, size, draws, device

    def __len__(self) -> int:
        return self.size

    def batch(self, examples: Tensor) -> Batch:
        examples, steps, copied = examples.to(self.device), self.settings.sequence_length, self.settings.copied
        places = self.draws.orders(examples, 1, steps, PLACES)[:, 0, :copied].sort(1).values
        tokens = 1 + self.draws.rows(self.settings.vocabulary - 2, examples, copied, TOKENS)
        inputs = torch.full((len(examples), steps + copied), BLANK, device=self.device)
        inputs.scatter_(1, places, tokens)
        inputs[:, steps:] = self.settings.vocabulary - 1
        positions = torch.arange(steps, steps + copied, device=self.device).unsqueeze(1).expand(-1, len(examples))
        return Batch(inputs.T.contiguous(), tokens.T.contiguous(), positions=positions.contiguous())
