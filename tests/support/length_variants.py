"""Variants of chosen accuracies over length: from length 1 on, one for each length."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace

import numpy as np

from orthobench.analysis.logged import Vectors
from orthobench.store import Status

LONGEST = 256
"""The longest test length of `with_horizons`."""


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
    run = SimpleNamespace(baselines={"accuracy": chance})
    return SimpleNamespace(
        run=run,
        runs=runs,
        finished=runs,
        diverged=0,
        traces=by_name(rows),
        label=label,
        cache={},
        curves_of_runs=lambda *_: {},  # no probe
    )


def by_name(rows: Sequence[tuple[int, str, int, int, Sequence[float]]]) -> dict[str, Vectors]:
    """Return vectors by name from rows of run, name, epoch, iteration and values."""
    names = sorted({name for _, name, *_ in rows})
    return {
        name: Vectors.of([(run, epoch, at, values) for run, own, epoch, at, values in rows if own == name])
        for name in names
    }


def with_horizons(
    model: str,
    *pairs: tuple[float, float],
    lowest: float | None = None,
    threshold: float = 0.5,
    tested: tuple[float, ...] = (10.0, 20.0),
    diverged: int = 0,
    losses: Sequence[float] = (),
) -> SimpleNamespace:
    """A variant whose seeds have these predicted and measured horizons, after training at lengths up to 20.

    The tests have the lengths in `tested`, the measured horizons and the longest. A decoder reads every state up to
    its measured horizon, and none beyond. `losses` are those of training, and `diverged` the number of further seeds.
    """
    everyone = [
        SimpleNamespace(
            id=10 * len(model) + seed,
            seed=seed,
            model=model,
            status=Status.FINISHED if seed < len(pairs) else Status.DIVERGED,
            baselines={"accuracy": 0.0},
            solved_at=None,
            final_value=1.0,
        )
        for seed in range(len(pairs) + diverged)
    ]
    runs = everyone[: len(pairs)]
    series = {
        f"error_control/{name}": {
            run.id: (np.array([0, 9]), np.array([0.0, value])) for run, value in zip(runs, values, strict=True)
        }
        for name, values in (
            ("predicted_horizon", [pair[0] for pair in pairs]),
            ("threshold", [threshold] * len(pairs)),
        )
    }
    series["loss"] = {run.id: (np.arange(1, len(losses) + 1), np.array(losses)) for run in runs if losses}
    rows = []
    for run, (_, measured) in zip(runs, pairs, strict=True):
        lengths = sorted({*tested, LONGEST, *([measured] if 0 < measured < math.inf else [])})
        rows.append((run.id, "error_control/lengths", 0, 9, lengths))
        rows.append((run.id, "error_control/accuracy", 0, 9, [float(length <= measured) for length in lengths]))
        rows.append((run.id, "by_length/trained", 0, 9, [1.0, 20.0]))
    if lowest is not None:
        rows += [(run.id, "jacobian/eigenvalues/4", 0, 0, [-9.0, 0.0]) for run in runs]  # before training
        rows += [(run.id, "jacobian/eigenvalues/4", 0, 9, [0.5, 0.1, lowest, -3.0]) for run in runs]
    return SimpleNamespace(
        run=everyone[0],
        runs=everyone,
        finished=runs,
        diverged=diverged,
        label=model,
        traces=by_name(rows),
        curves_of_runs=lambda _, name: series[name],
        cache={},
        median=None,
    )
