"""Memorisation of the MAD suite (Poli et al. 2024): fixed facts, which only the weights can hold.

A fact is a key and its value; keys and values are matched at random, once for a seed, and training and tests have the
same facts. A sequence of T tokens alternates between a key, uniform over the N keys, and a token that asks for its
value. Only the outputs at these tokens are read; loss: mean cross-entropy in nats. Tokens are the keys (0 to N - 1),
the values (N to 2 N - 1), which occur only in the answers, and the question (2 N).

Source: `mad/data/instances.py` in athms/mad-lab. Its vocabulary of 256 tokens gives 127 keys and 128 values, one of
which no key has, so N = 127 here.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size, Split, SyntheticSettings, constant_of, seeded_generator

from ._answers import AnswerTask
from ._draws import OFFSETS, Draws


class MemorizationSettings(SyntheticSettings):
    facts: int = Field(127, ge=2, description="N, number of facts")
    sequence_length: int = Field(32, ge=2, lt=OFFSETS, multiple_of=2, description="T, number of tokens")
    train_size: Size = Field(256, description="training sequences")
    test_size: Size = Field(1280, description="test sequences")


class Memorization(AnswerTask):
    version = 1
    title = "memorisation"
    cites = "poli2024"
    Settings = MemorizationSettings
    metrics = (Metric("accuracy", "max", is_fraction=True), Metric("cross_entropy", "min", "nats", "cross-entropy"))
    protocol = {
        "batch_size": 128,
        "epochs": 200,
        "schedule": "cosine",
        "final_rate": 1e-6,
        "optimizer": "adamw",
        "learning_rate": 5e-4,
    }
    quick = {
        "facts": 32,
        "sequence_length": 16,
        "train_size": 1280,
        "test_size": 500,
        "batch_size": 64,
        "epochs": 40,
        "hidden_size": 64,
        "learning_rate": 5e-3,
    }
    exact = {
        "model": "gru",
        "facts": 8,
        "sequence_length": 8,
        "train_size": 500,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "batch_size": 50,
        "epochs": 6,
        "hidden_size": 16,
        "learning_rate": 0.01,
        "shuffle": True,
        "clip_value": 0.1,
        "learning_rate_decay": 0.8,
    }

    def __init__(self, settings: MemorizationSettings, seed: int, device: torch.device) -> None:
        tokens = 2 * settings.facts + 1
        self.signature = Signature(tokens, tokens, "positions", tokens=True)
        values = settings.facts + torch.randperm(
            settings.facts, generator=seeded_generator(seed, "memorization", "facts")
        )

        def split(part: str, size: int) -> FactSplit:
            return FactSplit(settings, values.to(device), size, Draws(seed, "memorization", part))

        self.train, self.test = split("train", settings.train_size), split("test", settings.test_size)
        if size := settings.validation_size:
            self.validation = split("validation", size)

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: MemorizationSettings) -> dict[str, float]:
        """The scores of guessing a value at random, because the token that asks is always the same."""
        return {"accuracy": 1 / settings.facts, "cross_entropy": math.log(settings.facts)}


class FactSplit(Split):
    """`size` sequences of keys; `values` `[N]` are the values of the keys."""

    def __init__(self, settings: MemorizationSettings, values: Tensor, size: int, draws: Draws) -> None:
        self.asked, self.values, self.size, self.draws = settings.sequence_length // 2, values, size, draws

    def __len__(self) -> int:
        return self.size

    def batch(self, examples: Tensor) -> Batch:
        facts, device = len(self.values), self.values.device
        keys = self.draws.rows(facts, examples.to(device), self.asked)
        inputs = torch.stack((keys, torch.full_like(keys, 2 * facts)), 2).flatten(1)
        positions = torch.arange(1, 2 * self.asked, 2, device=device).unsqueeze(1).expand(-1, len(examples))
        return Batch(inputs.T.contiguous(), self.values[keys].T.contiguous(), positions=positions.contiguous())
