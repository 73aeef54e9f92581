"""FitzHugh-Nagumo: predict the next value of an excitable system with two time scales (Rusch et al. 2022, LEM).

    v' = v - v^3 / 3 - w + 0.5,   w' = (v + 0.7 - 0.8 w) / 50,   v(0) ~ U(-1, 1),   w(0) = 0

The inputs are v at T points in [0, 400], and the target of each step is v at the next point. The model does not see w.
The loss is the mean squared error, and the metric is its root over all steps and sequences.

The program integrates with scipy's RK45 and its default tolerances, 1e-3 and 1e-6. The tolerance is part of the data,
because v differs from the exact solution by up to 0.4 at its jumps. `_runge_kutta` uses the same method and step
control, so the first values agree with scipy's. Its steps then diverge from scipy's, because it rounds one power to
float32 and the step control amplifies the difference. Half of the solutions differ by 1e-9 by about point 60. Over all
solutions the difference is 3e-3 in root mean square and at most 0.1, as much as the RMSE that the paper reports. In
scipy, too, initial values that differ by 2e-15 give solutions that are 5e-4 apart. Both integrators are equally far
from the exact solution, 0.04. The task is therefore the program's, but its numbers are not.

The program's evaluation keeps only the error of its last batch, so its test error covers the last 128 of 1024
sequences. `counted=all` counts all of them. The paper reports the test error at the epoch with the best validation
error.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Signature
from orthobench.task import Batch, Metric, Size, Split, SyntheticSettings, Task, constant_of, derive_seed

from ._runge_kutta import integrate

CURRENT, SLOWNESS = 0.5, 50
PROGRAM_SEED, PROGRAM_BATCH = 1234, 128


class FitzHughNagumoSettings(SyntheticSettings):
    sequence_length: Size = Field(1000, description="T, number of steps of a sequence")
    duration: float = Field(400.0, gt=0, description="time between the first and the last value, in the system's units")
    relative_tolerance: float = Field(
        1e-3, ge=1e-12, lt=1, description="relative tolerance of the integration; the absolute one is 1e-6"
    )
    train_size: Size = Field(128, description="training sequences")
    validation_size: Size = Field(128, description="validation sequences")
    test_size: Size = Field(1024, description="test sequences")
    data_seed: Literal["program", "run"] = Field(
        "program",
        description="seed of the start values; program: NumPy's RandomState(1234) for every run; run: the run's seed",
    )
    counted: Literal["last_batch", "all"] = Field(
        "last_batch",
        description="validation and test sequences whose errors count; last_batch: the last 128, because the program's "
        "evaluation keeps only the error of its last batch; all: every sequence",
    )


class FitzHughNagumo(Task):
    version = 1
    title = "FitzHugh-Nagumo system"
    short_title = "FitzHugh-Nagumo"
    cites = "rusch2022lem, fitzhugh1961"
    Settings = FitzHughNagumoSettings
    metrics = (Metric("rmse", "min", label="RMSE", is_graded=True),)
    protocol = {"batch_size": 32, "epochs": 400, "evaluation_batch_size": 128}
    quick = {
        "sequence_length": 250,
        "duration": 100.0,
        "test_size": 256,
        "epochs": 60,
        "evaluate_every": 20,
    }
    exact = {
        "model": "lem",
        "train_size": 40,
        "validation_size": 20,
        "test_size": 140,
        "sequence_length": 150,
        "duration": 60.0,
        "batch_size": 8,
        "evaluation_batch_size": 5,
        "epochs": 6,
        "evaluate_every": 5,
        "hidden_size": 8,
        "learning_rate": 0.01,
        "shuffle": True,
        "clip_norm": 0.5,
        "plateau_decay": 0.5,
        "learning_rate_decay": 0.9,
    }

    train: SolutionSplit
    validation: SolutionSplit
    test: SolutionSplit

    def __init__(self, settings: FitzHughNagumoSettings, seed: int, device: torch.device) -> None:
        self.signature = Signature(input_size=1, output_size=1, readout="all")
        sizes = (settings.train_size, settings.validation_size, settings.test_size)
        # The remainder, because RandomState accepts seeds of 32 bits only.
        chosen = PROGRAM_SEED if settings.data_seed == "program" else derive_seed(seed, "fitzhugh_nagumo") % 2**32
        start = 2 * np.random.RandomState(chosen).rand(sum(sizes)) - 1
        train, *evaluated = np.split(start, np.cumsum(sizes[:-1]))
        if settings.counted == "last_batch":
            evaluated = [part[(len(part) - 1) // PROGRAM_BATCH * PROGRAM_BATCH :] for part in evaluated]
        parts = (train, *evaluated)
        solved = torch.from_numpy(solutions(np.concatenate(parts), settings).astype(np.float32)).to(device)
        self.train, self.validation, self.test = map(SolutionSplit, solved.split([len(part) for part in parts], dim=1))

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.mse_loss(outputs, targets)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        return {"mse": (nn.functional.mse_loss(outputs, targets, reduction="sum"), targets.numel())}

    def summarise(self, means: Mapping[str, float]) -> dict[str, float]:
        """Return the root of the mean squared error."""
        return {"rmse": math.sqrt(means["mse"])}

    def constant(self, split: Split) -> dict[str, float]:
        return constant_of(self, split)

    @classmethod
    def baselines(cls, settings: FitzHughNagumoSettings) -> dict[str, float]:
        """The test error of always predicting the mean of the training targets."""
        task = cls(settings, 0, torch.device("cpu"))
        error = task.test.values[1:] - task.train.values[1:].mean()
        return {"rmse": error.square().mean().sqrt().item()}


class SolutionSplit:
    """Solutions v `[T + 1, size]`."""

    def __init__(self, values: Tensor) -> None:
        self.values = values

    def __len__(self) -> int:
        return self.values.shape[1]

    def batch(self, examples: Tensor) -> Batch:
        """Return inputs and targets `[T, batch, 1]`."""
        values = self.values[:, examples].unsqueeze(-1)
        return Batch(values[:-1], values[1:])


def solutions(start: NDArray[np.float64], settings: FitzHughNagumoSettings) -> NDArray[np.float64]:
    """Return v `[T + 1, systems]` for these values of v at time 0 `[systems]`."""
    times = np.linspace(0, settings.duration, settings.sequence_length + 1)
    states = integrate(field, np.stack((start, np.zeros_like(start))), times, rtol=settings.relative_tolerance)
    return states[:, 0]


def field(state: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the derivatives of v and w `[2, systems]`."""
    v, w = state
    return np.stack((v - v * v * v / 3 - w + CURRENT, (v + 0.7 - 0.8 * w) / SLOWNESS))
