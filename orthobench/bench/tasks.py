"""The time of a batch of each task versus the training step on it, because data must not slow down training."""

from __future__ import annotations

from typing import Any

from orthobench.bench.implementations import SEED
from orthobench.bench.measure import interleave, ratio
from orthobench.bench.models import ModelStep
from orthobench.bench.suite import Setup, timing
from orthobench.errors import UsageError
from orthobench.model.build import build_model
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import Batches, seeded_generator

MODEL = "scornn"
"""A fast model, with which the share of the data is largest."""
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


def measure_tasks(catalog: Catalog, setup: Setup) -> dict[str, Any]:
    """Measure every task under its paper's protocol: seconds per batch, per step on it, and the batch's `share`.

    `left_out` gives the reason why a task is missing, for example missing data.
    """
    return setup.results(lambda: [_measure_all(catalog, setup)])


def _measure_all(catalog: Catalog, setup: Setup) -> dict[str, Any]:
    rows, left_out = [], {}
    for entry in catalog:
        if entry.kind != "task":
            continue
        for overrides in VARIATIONS.get(entry.name, ({},)):
            name = " ".join([entry.name, *(f"{key}={value}" for key, value in overrides.items())])
            setup.tell(name)
            try:
                rows.append({"task": name, **_measure(catalog, entry.name, overrides, setup)})
            except UsageError as error:
                left_out[name] = str(error)
    return {"shape": {"name": f"next to {MODEL}"}, "rows": rows, "left_out": left_out}


def _measure(catalog: Catalog, task_name: str, overrides: dict[str, str], setup: Setup) -> dict[str, Any]:
    config = resolve(catalog, task_name, MODEL, overrides, "quick" if setup.quick else "paper", SEED)
    task = config.task_class(config.task_settings, SEED, setup.device)
    model = build_model(
        config.model_class, config.model_settings, task.signature, seeded_generator(SEED, "model", MODEL)
    )
    next_batch = NextBatch(Batches(task, config.training, SEED, setup.device))
    batch = next_batch()
    step = ModelStep(model.to(setup.device), batch, task.loss)
    timed = interleave({"batch": next_batch, "step": step}, setup.rounds, setup.clock, setup.shortest)
    part = ratio(timed["batch"], timed["step"])
    return {
        "hidden_size": config.model_settings.hidden_size,
        "shape": list(batch.inputs.shape),
        "step_seconds": timing(timed["step"])["seconds"],
        "share": part / (1 + part),
        **timing(timed["batch"]),
    }
