"""Variants of chosen accuracies over length: from length 1 on, one for each length."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd

from orthobench.store import Status


def variant(
    *seeds: list[float], chance: float | None = 0.0, solved: tuple[int, ...] = (), label: str = "a model"
) -> SimpleNamespace:
    """Return a variant whose seeds have these accuracies at the last test, and 0 at the first.

    Runs in `solved` stop before the others. A run's final value is its mean accuracy.
    """
    runs = [
        SimpleNamespace(
            id=number,
            status=Status.FINISHED,
            solved_at=5 if number in solved else None,
            final_value=sum(values) / len(values),
        )
        for number, values in enumerate(seeds)
    ]
    rows = []
    for run, values in zip(runs, seeds, strict=True):
        last = 5 if run.id in solved else 9
        for iteration, scores in ((0, [0.0] * len(values)), (last, values)):
            rows.append((run.id, "by_length/accuracy", 0, iteration, scores))
            rows.append((run.id, "by_length/lengths", 0, iteration, list(range(1, len(values) + 1))))
    traces = pd.DataFrame(rows, columns=["run", "name", "epoch", "iteration", "values"])
    run = SimpleNamespace(baselines={"accuracy": chance})
    return SimpleNamespace(run=run, runs=runs, finished=runs, traces=traces, label=label, cache={})
