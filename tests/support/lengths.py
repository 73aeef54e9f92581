"""A small task with sequences of several lengths, and plugins of its variants."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.sequences import valid_steps
from orthobench.task import Batch, Metric, SyntheticSettings, Task, seeded_generator

TRAINED, LONGEST, IGNORED = (2, 4), 9, -100


class Sums(Task):
    """The sum of symbols 0 to 2 modulo 3 after the last one; training on lengths 2 to 4, tests on 3 to 9."""

    title = "sums modulo 3"
    Settings = SyntheticSettings
    metrics = (Metric("accuracy", "max", is_fraction=True),)
    length_metric = "accuracy"
    protocol = {"batch_size": 10, "epochs": 2}
    quick = {"train_size": 40, "test_size": 60, "hidden_size": 8}
    readout: Any = "last_valid"
    trims = True

    def __init__(self, settings: SyntheticSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(input_size=3, output_size=3, readout=self.readout, tokens=True)
        parts = (("train", settings.train_size, *TRAINED), ("test", settings.test_size, 3, LONGEST))
        self.train, self.test = (
            SumsSplit(self, size, shortest, longest, seeded_generator(seed, "sums", part), device)
            for part, size, shortest, longest in parts
        )

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {"accuracy": (self.score(outputs, targets).sum(), len(targets))}

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return (outputs.argmax(-1) == targets).float()

    @classmethod
    def trained_lengths(cls, settings: SyntheticSettings) -> tuple[int, int]:
        return TRAINED

    @classmethod
    def baselines(cls, settings: SyntheticSettings) -> dict[str, float]:
        return {"accuracy": 1 / 3}


class RunningSums(Sums):
    """The sum after every step."""

    readout = "all"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, 1), targets.flatten(), ignore_index=IGNORED)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {"accuracy": (self.score(outputs, targets).sum(), float((targets != IGNORED).sum()))}


class Positions(Sums):
    """The sum after the last symbol, by its position."""

    readout = "positions"

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().loss(outputs[0], targets)

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return super().score(outputs[0], targets)


class SumsSplit:
    """Sequences, padded to the longest of each batch, or of all."""

    def __init__(
        self, task: Sums, size: int, shortest: int, longest: int, generator: torch.Generator, device: torch.device
    ) -> None:
        self.readout, self.trims = task.readout, task.trims
        self.symbols = torch.randint(3, (longest, size), generator=generator).to(device)
        self.lengths = torch.randint(shortest, longest + 1, (size,), generator=generator).to(device)

    def __len__(self) -> int:
        return len(self.lengths)

    def batch(self, examples: Tensor) -> Batch:
        lengths = self.lengths[examples]
        symbols = self.symbols[: int(lengths.max()) if self.trims else None, examples]
        valid = valid_steps(lengths, len(symbols))
        sums = (symbols * valid).cumsum(0) % 3
        if self.readout == "all":
            return Batch(symbols, sums.masked_fill(~valid, IGNORED), lengths)
        positions = (lengths - 1).unsqueeze(0) if self.readout == "positions" else None
        return Batch(symbols, sums[-1], lengths, positions)
