"""A task with a setting that changes what its metric means."""

from __future__ import annotations

import torch
from pydantic import Field
from torch import nn

from orthobench.model import Signature
from orthobench.task import Batch, Metric, SyntheticSettings, Task, seeded_generator


class ModularSumSettings(SyntheticSettings):
    modulus: int = Field(2, ge=2, description="m, the sum of the digits is taken modulo m")
    sequence_length: int = Field(20, ge=1, description="T, number of digits")


class ModularSum(Task):
    """What is the sum of T digits below m, modulo m?"""

    title, Settings = "modular sum", ModularSumSettings
    metrics = (Metric("accuracy", "max", is_fraction=True), Metric("cross_entropy", "min", unit="nats"))
    loss_metric = "cross_entropy"
    quick = {"train_size": 500, "test_size": 100, "epochs": 2}

    def __init__(self, settings, seed, device):
        self.modulus = settings.modulus
        self.signature = Signature(input_size=settings.modulus, output_size=settings.modulus, readout="last")
        for part, size in (("train", settings.train_size), ("test", settings.test_size)):
            generator = seeded_generator(seed, "modular sum", part)
            digits = torch.randint(settings.modulus, (size, settings.sequence_length), generator=generator)
            setattr(self, part, Digits(digits.to(device), settings.modulus))

    def loss(self, outputs, targets):
        return nn.functional.cross_entropy(outputs, targets)

    def measure(self, outputs, targets):
        return {
            "accuracy": ((outputs.argmax(-1) == targets).sum(), len(targets)),
            "cross_entropy": (nn.functional.cross_entropy(outputs, targets, reduction="sum"), len(targets)),
        }

    @classmethod
    def baselines(cls, settings):
        chance = torch.tensor(1 / settings.modulus)
        return {"accuracy": float(chance), "cross_entropy": float(-chance.log())}


class Digits:
    def __init__(self, digits, modulus):
        self.digits, self.modulus = digits, modulus

    def __len__(self):
        return len(self.digits)

    def batch(self, examples):
        digits = self.digits[examples]
        one_hot = nn.functional.one_hot(digits.T, self.modulus).float()
        return Batch(one_hot, digits.sum(1) % self.modulus)
