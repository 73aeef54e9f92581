"""The adding problem (Hochreiter and Schmidhuber 1997), as in the scoRNN papers' programs.

Two channels of length T: values U[0, 1), and markers, which are zero except for two ones, one in each half. The target
is the sum of the two marked values, to be given after the last step. Loss and metric: mean squared error. The programs
differ: D-14, D-36.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.task import MULTIPLES, Batch, Metric, ScalableSettings, Split, Task, constant_of, seeded_generator

MSE = Metric("mse", "min", label="MSE")


class AddingSettings(ScalableSettings):
    sequence_length: int = Field(200, ge=4, description="T, number of steps; 200, 400 and 750 in the papers")
    marker_layout: Literal["scornn", "halves", "anywhere"] = Field(
        "scornn",
        description="positions of the two markers; scornn: [0, f) and [f, T) with f = floor((T - 1) / 2); "
        "halves: [0, T / 2) and [T / 2, T) (uRNN programs); anywhere: two distinct steps (oRNN program)",
    )


class Adding(Task):
    version = 1
    title = "adding problem"
    short_title = "adding"
    cites = "hochreiter1997"
    affine_fails = "the target is a sum of products of values and markers"
    Settings = AddingSettings
    metrics = (MSE, *map(MSE.at_multiple, MULTIPLES))
    longer_metric = "mse"
    draws_ahead = True
    protocol = {
        "batch_size": 50,
        "epochs": 10,
        "evaluate_every": 100,
        "shuffle": False,
        "optimizer": "adam_tf1",
        "learning_rate": 1e-3,
    }
    quick = {
        "sequence_length": 100,
        "train_size": 10_000,
        "test_size": 1_000,
        "epochs": 20,
        "evaluate_every": 50,
    }
    exact = {
        "model": "lstm",
        "train_size": 1_000,
        "test_size": 200,
        "evaluation_batch_size": 64,
        "epochs": 3,
        "evaluate_every": 20,
        "hidden_size": 16,
        "shuffle": True,
        "clip_norm": 0.5,
        "learning_rate_decay": 0.5,
    }

    def __init__(self, settings: AddingSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(input_size=2, output_size=1, readout="last")

        def split(part: str, size: int, settings: AddingSettings) -> AddingSplit:
            return AddingSplit(settings, size, seeded_generator(seed, "adding", part), device)

        self.generate(settings, split)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {"mse": (nn.functional.mse_loss(outputs, targets, reduction="sum"), targets.shape[0])}

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: AddingSettings) -> dict[str, float]:
        names = ["mse", *(f"mse_{multiple}t" for multiple in MULTIPLES if settings.longer_tests)]
        return dict.fromkeys(names, 2 / 12)  # the variance of a sum of two U[0, 1), whose mean is 1


class AddingSplit:
    """`size` sequences: values `[size, T]` and the two marked steps `[size, 2]` of each."""

    def __init__(self, settings: AddingSettings, size: int, generator: torch.Generator, device: torch.device) -> None:
        # Drawn on the CPU, because a GPU's generator would make other data from the same seed.
        self.values = torch.rand(size, settings.sequence_length, generator=generator).to(device)
        self.marked = _marked_steps(settings, size, generator).to(device)

    def __len__(self) -> int:
        return len(self.values)

    def batch(self, examples: Tensor) -> Batch:
        values, marked = self.values[examples], self.marked[examples]
        markers = torch.zeros_like(values).scatter_(1, marked, 1.0)
        inputs = torch.stack((values.T, markers.T), dim=-1)
        return Batch(inputs, values.gather(1, marked).sum(1, keepdim=True))


def _marked_steps(settings: AddingSettings, size: int, generator: torch.Generator) -> Tensor:
    length = settings.sequence_length

    def draw(first: int, past: int) -> Tensor:
        return torch.randint(first, past, (size,), generator=generator)

    if settings.marker_layout == "anywhere":
        first, second = draw(0, length), draw(0, length - 1)
        return torch.stack((first, second + (second >= first)), dim=1)
    border = (length - 1) // 2 if settings.marker_layout == "scornn" else length // 2
    return torch.stack((draw(0, border), draw(border, length)), dim=1)
