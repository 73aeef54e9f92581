"""Tests at multiples of the trained length, once after training."""

from __future__ import annotations

from collections.abc import Callable

import torch

from orthobench.model import Model
from orthobench.task import MULTIPLES, Split, Task

TOGETHER = 100
"""The number of sequences in one batch of these tests."""


@torch.no_grad()
def measure_longer(
    task: Task, name: str, split_at: Callable[[int], Split], model: Model, report: Callable[[int, int], None]
) -> dict[str, float]:
    """Return a metric of `task.measure` at each multiple.

    Args:
        split_at: returns the test sequences for a multiple.
        report: receives the number of finished batches and the number of all.
    """
    splits = {multiple: split_at(multiple) for multiple in MULTIPLES}
    totals = dict.fromkeys(MULTIPLES, (0.0, 0.0))
    batches = [
        (multiple, examples)
        for multiple, split in splits.items()
        for examples in torch.arange(len(split)).split(TOGETHER)
    ]
    for done, (multiple, examples) in enumerate(batches, 1):
        batch = splits[multiple].batch(examples.to(next(model.parameters()).device))
        value, weight = task.measure(batch.through(model)[0], batch.targets)[name]
        before, weights = totals[multiple]
        totals[multiple] = before + float(value), weights + weight
        report(done, len(batches))
    return {f"{name}_{multiple}t": value / weight for multiple, (value, weight) in totals.items()}
