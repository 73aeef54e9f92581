"""A training step of every model, compared as in table 3 of the scoRNN paper: pixel MNIST in batches of 50."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Generator, Tensor
from torch.nn.functional import cross_entropy

from orthobench.bench.implementations import SEED, in_graph
from orthobench.bench.measure import interleave, ratio
from orthobench.bench.suite import Setup, timing
from orthobench.model import Model, Signature
from orthobench.task import Batch
from orthobench.training.graph import graph_problem
from orthobench.training.optimizers import build_optimizer

BATCH, STEPS, PIXELS, CLASSES, LEVELS = 50, 784, 1, 10, 256
PER_EPOCH = 55_000 // BATCH
COMMON = 128
"""The hidden size for comparing all models; some of them need a power of two."""
MEASURE = "scornn"
"""The model to which the ratios refer."""


@dataclass(frozen=True)
class PrintedTime:
    """A row of table 3: minutes per epoch on a Core i5-7400 with a GTX 1080."""

    model: str
    hidden_size: int
    minutes: float


TABLE_3 = (
    PrintedTime("rnn", 116, 2.3),
    PrintedTime("scornn", 170, 5.3),
    PrintedTime("urnn", 512, 8.2),
    PrintedTime("full_urnn", 116, 10.8),
    PrintedTime("lstm", 128, 5.0),
    PrintedTime("scornn", 360, 7.4),
    PrintedTime("urnn", 2170, 50.1),
    PrintedTime("rnn", 360, 2.3),
    PrintedTime("scornn", 512, 11.2),
    PrintedTime("full_urnn", 360, 25.8),
    PrintedTime("rnn", 512, 2.4),
    PrintedTime("lstm", 256, 5.2),
    PrintedTime("full_urnn", 512, 27.9),
    PrintedTime("lstm", 512, 5.6),
)


class ModelStep:
    """One training step of a model on one batch, with the model's optimisers, penalty and constraint.

    On CUDA the step is replayed as a graph where training does so.

    Args:
        loss: returns a scalar from outputs and targets.
    """

    def __init__(self, model: Model, batch: Batch, loss: Callable[[Tensor, Tensor], Tensor]) -> None:
        self.model, self.batch, self.loss = model, batch, loss
        self.optimizers = [
            build_optimizer(group.optimizer, group.parameters, group.learning_rate)
            for group in model.parameter_groups()
        ]
        device = batch.inputs.device
        self.run = self.train if graph_problem(model, device) else in_graph(self.train, device, False)

    def train(self) -> None:
        """Train on the batch, without waiting for the device."""
        outputs, _ = self.batch.through(self.model)
        loss, penalty = self.loss(outputs, self.batch.targets), self.model.penalty()
        self.model.zero_grad()
        (loss if penalty is None else loss + penalty).backward()
        for optimizer in self.optimizers:
            optimizer.step()
        with torch.no_grad():
            self.model.after_step()

    def __call__(self) -> None:
        self.run()
        if self.batch.inputs.is_cuda:
            torch.cuda.synchronize(self.batch.inputs.device)


def step_on_noise(model_class: Any, device: torch.device, hidden_size: int, steps: int) -> ModelStep:
    """Return a step of a model on noise in the images' shape and grey levels."""
    generator = Generator().manual_seed(SEED)
    settings = model_class.Settings.read({"hidden_size": hidden_size})
    model = model_class(settings, Signature(PIXELS, CLASSES, "last"), generator).to(device)
    inputs = (torch.randint(LEVELS, (steps, BATCH, PIXELS), generator=generator) / (LEVELS - 1)).to(device)
    classes = torch.randint(CLASSES, (BATCH,), generator=generator).to(device)
    return ModelStep(model, Batch(inputs, classes), cross_entropy)


def measure_models(models: Mapping[str, type[Model]], setup: Setup) -> dict[str, Any]:
    """Measure every model at the common size, then table 3's rows: seconds per step, minutes per epoch.

    `ratio` is the time of a step divided by the time of scoRNN's step of the same size.
    """
    common = [(name, COMMON) for name in models]
    printed = {(row.model, row.hidden_size): row.minutes for row in TABLE_3 if row.model in models}

    def measure() -> list[dict[str, Any]]:
        equal = _compare("equal size", common, models, setup)
        table = _compare("table 3", [*printed], models, setup)
        for row in table["rows"]:
            row["printed"] = printed.get((row["model"], row["hidden_size"]))
        return [equal, table]

    return setup.results(measure)


def _compare(
    shape: str, rows: Sequence[tuple[str, int]], models: Mapping[str, type[Model]], setup: Setup
) -> dict[str, Any]:
    sized_models = sorted({*rows, *((MEASURE, hidden_size) for _, hidden_size in rows)})
    labels = {row: f"{row[0]} {row[1]}" for row in sized_models}
    small = (8, 6)
    steps: dict[str, Callable[[], object]] = {
        label: step_on_noise(models[name], setup.device, *(small if setup.quick else (hidden_size, STEPS)))
        for (name, hidden_size), label in labels.items()
    }
    setup.tell(f"{shape}: {', '.join(steps)}")
    timed = interleave(steps, setup.rounds, setup.clock, setup.shortest, warm=True)
    measured_rows = []
    for (name, hidden_size), label in labels.items():
        measured = timing(timed[label])
        measured_rows.append(
            {
                "model": name,
                "hidden_size": hidden_size,
                **measured,
                "minutes": measured["seconds"] * PER_EPOCH / 60,
                "printed": None,
                "ratio": ratio(timed[label], timed[labels[MEASURE, hidden_size]]),
                "cost": models[name].cost,
            }
        )
    measured_rows.sort(key=lambda row: (row["hidden_size"], row["seconds"]))
    return {"shape": {"name": shape}, "rows": measured_rows}
