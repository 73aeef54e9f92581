"""What the harness adds to a training step of a layer of another program, next to a loop written by hand.

python workshop/benchmarks/foreign_overhead.py [ROUNDS]        (20)

Both train torch.nn.GRU or torch.nn.LSTM with Adam on the adding problem: B = 50, T = 200, n = 128. A step of the
harness is a step of its trainer, which also draws the batch. The loop by hand takes the next rows of the same tensors.
The two take turns. The times are CPU seconds of one thread, so that other work on the machine counts little.
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import nn

from orthobench.bench.measure import CPU, interleave, ratio, summarise
from orthobench.isolation import isolated
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.training.build import build_trainer
from orthobench.training.trainer import Trainer

BATCH, STEPS, UNITS, ROWS = 50, 200, 128, 1000
REPEATS = 5
"""Training steps of one measurement."""


def harness(name: str) -> Trainer:
    settings = {
        "sequence_length": STEPS,
        "batch_size": BATCH,
        "hidden_size": UNITS,
        "optimizer": "adam",
        "train_size": ROWS,
        "test_size": BATCH,
        "epochs": 10_000,
    }
    return build_trainer(resolve(Catalog(), "adding", name, settings), torch.device("cpu"))


def by_hand(layer: nn.Module, trainer: Trainer) -> Callable[[], None]:
    batch = trainer.task.train.batch(torch.arange(ROWS))
    inputs, targets = batch.inputs, batch.targets
    output = nn.Linear(UNITS, 1)
    optimizer = torch.optim.Adam([*layer.parameters(), *output.parameters()], lr=1e-3)
    start = 0

    def step() -> None:
        nonlocal start
        rows = slice(start, start + BATCH)
        start = (start + BATCH) % ROWS
        hidden, _ = layer(inputs[:, rows])
        loss = nn.functional.mse_loss(output(hidden[-1]), targets[rows].view(BATCH, 1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def repeated(step: Callable[[], None]) -> Callable[[], None]:
    def several() -> None:
        for _ in range(REPEATS):
            step()

    return several


def main(rounds: int) -> None:
    with isolated(threads=1):
        for cls in (nn.GRU, nn.LSTM):
            trainer = harness(f"torch.nn:{cls.__name__}")
            steps = {"harness": trainer.advance, "by hand": by_hand(cls(2, UNITS), trainer)}
            samples = interleave({name: repeated(step) for name, step in steps.items()}, rounds, CPU)
            each = {name: f"{1000 * summarise(taken).seconds / REPEATS:.2f} ms" for name, taken in samples.items()}
            times = ", ".join(f"{name} {seconds}" for name, seconds in each.items())
            print(f"torch.nn.{cls.__name__}: {times}, ratio {ratio(samples['harness'], samples['by hand']):.3f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 20)
