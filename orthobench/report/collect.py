"""From the database to what a page shows: conditions, in each the models' curves and results."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from orthobench.papers import Experiment, experiments
from orthobench.statistics import Summary, summarize
from orthobench.store import Run, Status, Store


@dataclass(frozen=True)
class Comparison:
    """The paper's experiment nearest to a variant, and where the variant's settings differ from it."""

    experiment: Experiment
    differences: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class Variant:
    """Runs that differ by seed alone.

    `curves` has a row for every run, metric and iteration (columns run, split, name, epoch, iteration, value);
    `traces` one for every run, vector and iteration (columns run, name, epoch, iteration, values).
    """

    label: str
    runs: list[Run]
    curves: pd.DataFrame
    traces: pd.DataFrame
    final: Summary | None
    best: Summary | None
    seconds_per_epoch: Summary | None
    comparison: Comparison | None

    @property
    def run(self) -> Run:
        """Any of the runs, for what they share."""
        return self.runs[0]

    @property
    def finished(self) -> int:
        return sum(run.status == Status.FINISHED for run in self.runs)

    @property
    def diverged(self) -> int:
        return sum(run.status == Status.DIVERGED for run in self.runs)


@dataclass(frozen=True)
class Condition:
    """One task with one set of task settings: what is inside may be compared."""

    key: str
    task: str
    settings: dict[str, Any]
    metric: str
    goal: str
    baseline: float | None
    variants: list[Variant]


def collect(store: Store, task: str | None = None, model: str | None = None) -> list[Condition]:
    """Everything measured, by condition, in the order it was begun."""
    runs = store.runs(task=task, model=model)
    ids = [run.id for run in runs]
    curves = pd.DataFrame(
        [(m.run_id, m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics(ids)],
        columns=["run", "split", "name", "epoch", "iteration", "value"],
    )
    traces = pd.DataFrame(
        [(t.run_id, t.name, t.epoch, t.iteration, t.values) for t in store.traces(ids)],
        columns=["run", "name", "epoch", "iteration", "values"],
    )
    return [_condition(group, curves, traces) for group in _grouped(runs, "condition")]


def _grouped(runs: Sequence[Run], column: str) -> list[list[Run]]:
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(getattr(run, column), []).append(run)
    return list(groups.values())


def _condition(runs: list[Run], curves: pd.DataFrame, traces: pd.DataFrame) -> Condition:
    groups = _grouped(runs, "variant")
    labels = _labels([group[0] for group in groups])
    first = runs[0]
    return Condition(
        first.condition,
        first.task,
        first.spec["task_settings"],
        first.metric,
        first.goal,
        first.baselines.get(first.metric),
        [_variant(label, group, curves, traces) for label, group in zip(labels, groups, strict=True)],
    )


def _labels(variants: list[Run]) -> list[str]:
    """The model's name, and the settings that tell variants of the same model apart."""
    labels = []
    for run in variants:
        own = _settings(run)
        others = [_settings(other) for other in variants if other.model == run.model and other is not run]
        telling = [name for name, value in own.items() if any(other.get(name) != value for other in others)]
        labels.append(" ".join([run.model, *(f"{name}={own[name]}" for name in telling)]))
    return labels


def _settings(run: Run) -> dict[str, Any]:
    return {**run.spec["model_settings"], **run.spec["training"], "version": run.spec["model_version"]}


def _variant(label: str, runs: list[Run], curves: pd.DataFrame, traces: pd.DataFrame) -> Variant:
    ids = [run.id for run in runs]
    finished = [run for run in runs if run.status == Status.FINISHED]
    return Variant(
        label,
        runs,
        curves[curves["run"].isin(ids)],
        traces[traces["run"].isin(ids)],
        summarize([run.final_value for run in finished if run.final_value is not None]),
        summarize([run.best_value for run in finished if run.best_value is not None]),
        summarize([seconds for run in runs if (seconds := run.seconds_per_epoch) is not None]),
        _compare(runs[0]),
    )


def _compare(run: Run) -> Comparison | None:
    settings = run.spec["task_settings"] | run.spec["model_settings"] | run.spec["training"]
    candidates = [
        Comparison(experiment, experiment.differences(settings)) for experiment in experiments(run.task, run.model)
    ]
    return min(candidates, key=lambda candidate: len(candidate.differences), default=None)
