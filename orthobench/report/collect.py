"""From the database to what a page shows: conditions, in each the models' curves and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from orthobench.papers import Experiment, experiments
from orthobench.store import Run, Store
from orthobench.variants import Variant, group, variants


@dataclass(frozen=True)
class Comparison:
    """The paper's experiment nearest to a variant, and where the variant's settings differ from it."""

    experiment: Experiment
    differences: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Measured(Variant):
    """A variant with everything that was logged of it.

    `curves` has a row for every run, metric and iteration (columns run, split, name, epoch, iteration, value);
    `traces` one for every run, vector and iteration (columns run, name, epoch, iteration, values).
    """

    curves: pd.DataFrame
    traces: pd.DataFrame
    comparison: Comparison | None


@dataclass(frozen=True)
class Condition:
    """One task with one set of task settings: what is inside may be compared."""

    key: str
    task: str
    settings: dict[str, Any]
    metric: str
    goal: str
    baseline: float | None
    variants: list[Measured]


def collect(
    store: Store, task: str | None = None, model: str | None = None, keys: Sequence[str] | None = None
) -> list[Condition]:
    """Everything measured (of the runs of these keys), by condition, in the order it was begun."""
    runs = store.runs(task=task, model=model, keys=keys)
    ids = [run.id for run in runs]
    curves = pd.DataFrame(
        [(m.run_id, m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics(ids)],
        columns=["run", "split", "name", "epoch", "iteration", "value"],
    )
    traces = pd.DataFrame(
        [(t.run_id, t.name, t.epoch, t.iteration, t.values) for t in store.traces(ids)],
        columns=["run", "name", "epoch", "iteration", "values"],
    )
    return [_condition(members, curves, traces) for members in group(runs, lambda run: run.condition)]


def _condition(runs: list[Run], curves: pd.DataFrame, traces: pd.DataFrame) -> Condition:
    first = runs[0]
    return Condition(
        first.condition,
        first.task,
        first.spec["task_settings"],
        first.metric,
        first.goal,
        first.baselines.get(first.metric),
        [_measured(variant, curves, traces) for variant in variants(runs)],
    )


def _measured(variant: Variant, curves: pd.DataFrame, traces: pd.DataFrame) -> Measured:
    ids = [run.id for run in variant.runs]
    return Measured(
        variant.label,
        variant.runs,
        curves[curves["run"].isin(ids)],
        traces[traces["run"].isin(ids)],
        _compare(variant.run),
    )


def _compare(run: Run) -> Comparison | None:
    settings = run.spec["task_settings"] | run.spec["model_settings"] | run.spec["training"]
    candidates = [
        Comparison(experiment, experiment.differences(settings)) for experiment in experiments(run.task, run.model)
    ]
    return min(candidates, key=lambda candidate: len(candidate.differences), default=None)
