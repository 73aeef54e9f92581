"""The time of a batch of each task next to the training step on it, because data must not slow down training.

    python workshop/benchmarks/task_batches.py --rounds 3

Every task is drawn under its paper's protocol. The step is that of scoRNN, a fast model, so its share is the largest.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from typing import Any

import torch

from orthobench.bench.implementations import SEED
from orthobench.bench.measure import interleave, ratio, summarise
from orthobench.bench.models import ModelStep
from orthobench.errors import UsageError
from orthobench.isolation import isolated
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import Batches, seeded_generator

MODEL = "scornn"
VARIATIONS: dict[str, tuple[dict[str, str], ...]] = {
    "mnist": ({}, {"permuted": "true"}),
    "cifar10": ({}, {"noise_padded": "true"}),
    "timit": ({"dataset": "timit_sample"},),
}
"""Settings with which a task is measured, if not with its defaults."""


class NextBatch:
    """The next batch of a training set, epoch after epoch."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.iteration = batches, 0

    def __call__(self) -> Any:
        batch = self.batches.at(self.iteration)
        self.iteration += 1
        return batch


def measured(catalog: Catalog, name: str, settings: dict[str, str], rounds: int) -> str:
    """Return the shape of a batch, and the milliseconds of a batch and of a step.

    Raises:
        UsageError: the task cannot start, for example because its data are missing.
    """
    config, device = resolve(catalog, name, MODEL, settings), torch.device("cpu")
    task = config.task_class(config.task_settings, SEED, device)
    generator = seeded_generator(SEED, "model", MODEL)
    model = build_model(config.model_class, config.model_settings, task.signature, generator)
    next_batch = NextBatch(Batches(task, config.training, SEED, device))
    batch = next_batch()
    steps: dict[str, Callable[[], object]] = {"batch": next_batch, "step": ModelStep(model, batch, task.loss)}
    samples = interleave(steps, rounds)
    drawn, trained = (1000 * summarise(samples[each]).seconds for each in ("batch", "step"))
    part = ratio(samples["batch"], samples["step"])
    shape = " x ".join(map(str, batch.inputs.shape))
    return f"{shape:<18} {drawn:>8.3f} ms of {trained:>8.2f} ms {part / (1 + part):>8.2%}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds, catalog = parser.parse_args().rounds, Catalog()
    with isolated():
        for name in catalog.built_in("task"):
            for settings in VARIATIONS.get(name, ({},)):
                title = " ".join([name, *(f"{key}={value}" for key, value in settings.items())])
                try:
                    row = measured(catalog, name, settings, rounds)
                except UsageError as error:
                    row = f"without: {error}"
                print(f"{title:<28} {row}", flush=True)


if __name__ == "__main__":
    main()
