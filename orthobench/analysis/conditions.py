"""Load stored runs by condition: the models' curves, vectors and results, with the papers' nearest experiments."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import pandas as pd

from orthobench.analysis.logged import (
    NOTHING,
    Logged,
    SeriesName,
    Values,
    Vectors,
    metrics_by_variant,
    vectors_by_variant,
)
from orthobench.analysis.scores import LEARNT, SOLVED, scores_of, solving
from orthobench.analysis.statistics import CurveEnd, Median, Side, curve_end, median, side
from orthobench.analysis.variants import Variant, group, variants
from orthobench.metric import Metric
from orthobench.papers import Experiment, Printed, experiments
from orthobench.settings import merged_settings
from orthobench.spec.index import built_in
from orthobench.store import Run, Status, Store
from orthobench.store.columns import Integers, metric_columns, trace_columns

Name = TypeVar("Name", SeriesName, str)
Measured = TypeVar("Measured", Logged, Vectors)


def name_of_task(task: str) -> str:
    """Return the name of a task for people: in short, or else its title; of a task from outside, the stored name."""
    record = built_in()["plugins"].get(f"task/{task}", {})
    return record.get("short_title") or record.get("title") or task


@dataclass(frozen=True)
class NearestExperiment:
    """The paper's experiment nearest to a variant, and the settings that differ, by name: the run's and the paper's."""

    experiment: Experiment
    differences: dict[str, tuple[Any, Any]]


@dataclass(frozen=True)
class VariantData(Variant):
    """A variant with all its logged values.

    Attributes:
        metrics: the values of each metric, by split and name.
        traces: the vectors of each name, in alphabetical order.
        selection: the paper's rule for choosing among a run's evaluations.
    """

    metrics: Mapping[SeriesName, Logged]
    traces: Mapping[str, Vectors]
    comparison: NearestExperiment | None
    selection: str = "last"
    # Not functools.cache, because a variant has no hash: its metrics are a mapping.
    cache: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    def series(self, split: str, name: str) -> Logged:
        """Return a metric's logged values."""
        return self.metrics.get((split, name), NOTHING)

    def series_of_runs(self, split: str, name: str) -> dict[int, pd.Series]:
        """Return the logged values of a metric for each finished run that has any, by iteration."""
        key = ("runs", split, name)
        if key not in self.cache:
            self.cache[key] = {
                run: pd.Series(values, pd.Index(iterations, name="iteration"), name="value")
                for run, (iterations, values) in self.curves_of_runs(split, name).items()
            }
        logged: dict[int, pd.Series] = self.cache[key]
        return logged

    def curves_of_runs(self, split: str, name: str) -> dict[int, tuple[Integers, Values]]:
        """Return the iterations and the values of a metric for each finished run that has any."""
        rows = self.series(split, name)
        return {run.id: curve for run in self.finished if (curve := rows.curve(run.id))}

    def ends_of(self, split: str, name: str) -> dict[int, CurveEnd]:
        """Return the end of a metric's curve for every finished run that has one, by the run's id.

        If a run stopped because its task was solved, its end is only its last test, because the task was not solved at
        the earlier ones.
        """
        rows = self.series(split, name)
        ends: dict[int, CurveEnd] = {}
        for run in self.finished:
            if curve := rows.curve(run.id):
                tests = curve[1][-1:] if run.solved_at is not None else curve[1]
                if end := curve_end(tests.tolist()):
                    ends[run.id] = end
        return ends

    @cached_property
    def ends(self) -> dict[int, CurveEnd]:
        """The ends of the test metric of the finished runs, by the run's id."""
        return self.ends_of("test", self.run.metric)

    @cached_property
    def scored(self) -> list[tuple[Run, float]]:
        """The finished runs with their ends, and the diverged ones, with the worst value for these and for NaN.

        Trials of a search that uses no test data have none.
        """
        if self.run.is_trial:
            return []
        worst = self.run.main_metric.worst
        ends = [(run, self.ends[run.id].value) for run in self.finished if run.id in self.ends]
        diverged = [(run, worst) for run in self.runs if run.status == Status.DIVERGED]
        return [*((run, worst if math.isnan(end) else end) for run, end in ends), *diverged]

    @property
    def scores(self) -> list[float]:
        """The values of `scored`."""
        return [value for _, value in self.scored]

    @property
    def perfect(self) -> float | None:
        """The perfect value of the main metric (`Metric.perfect`)."""
        return self.run.main_metric.perfect(self.scores, self.run.baselines.get(self.run.metric))

    @property
    def solved_shares(self) -> list[float]:
        """The score of each of `scores` (`scores_of`), which every table and picture that compares tasks shows."""
        return scores_of(self.scored)

    @property
    def learns(self) -> bool:
        """Whether the median seed has a score of at least `LEARNT`; true if values have no scores."""
        scores = self.solved_shares
        return not scores or statistics.median(scores) >= LEARNT

    @cached_property
    def median(self) -> Median | None:
        """The median of the ends over the finished and the diverged runs; diverged runs count as the worst."""
        return median(self.scores)

    def median_of(self, split: str, name: str) -> Median | None:
        """Return the median of the ends of any metric; runs that diverged are the worst if the task declares it."""
        declared, ends = self.run.declared(name), [end.value for end in self.ends_of(split, name).values()]
        if declared is None:
            return median(list(filter(math.isfinite, ends)))
        return median([declared.worst if math.isnan(end) else end for end in ends] + [declared.worst] * self.diverged)

    @property
    def against_baseline(self) -> Side | None:
        """Which ends are better than the task's baseline, as those of diverged runs never are.

        None without a baseline or a finished run.
        """
        metric = self.run.main_metric
        baselines: dict[int, float] = {
            run.id: run.baselines[run.metric] for run in self.runs if run.metric in run.baselines
        }
        if len(baselines) < len(self.runs) or not self.ends:
            return None
        # As distances from each run's own baseline. The next number, because an end that equals it is not better.
        gains = [
            CurveEnd(tuple(metric.sign * (test - baselines[run]) for test in end.tests))
            for run, end in self.ends.items()
        ]
        ends = side(gains, math.nextafter(0.0, -math.inf))
        return replace(ends, seeds=ends.seeds + self.diverged)

    @cached_property
    def solved(self) -> Side | None:
        """How many finished and diverged runs solve the task (`solving`); None if no value solves it."""
        solved = solving(self.scored)
        return Side(sum(solved), len(solved), 1 - sum(solved) / len(solved)) if solved else None

    @property
    def solved_at(self) -> float | None:
        """The value that solves the task; None for a graded metric, or without a baseline or a perfect value."""
        baseline: float | None = self.run.baselines.get(self.run.metric)
        perfect = self.perfect
        if self.run.main_metric.is_graded or baseline is None or perfect is None:
            return None
        return baseline + SOLVED * (perfect - baseline)

    @property
    def solved_from(self) -> list[float]:
        """The iteration of the first test that solves the task, for each seed whose end solves it, in order."""
        curves, perfect = self.curves_of_runs("test", self.run.metric), self.perfect
        times = []
        for (run, _), is_solved in zip(self.scored, solving(self.scored), strict=False):  # none if no value solves it
            if is_solved and perfect is not None:
                at, values = curves[run.id]
                zero = run.baselines[run.metric]
                times.append(float(at[int(np.argmax((values - zero) / (perfect - zero) >= SOLVED))]))
        return sorted(times)

    @property
    def experiment(self) -> Experiment | None:
        """The paper's experiment that has exactly these settings, of several the first; None without one."""
        return None if self.comparison is None or self.comparison.differences else self.comparison.experiment

    @property
    def printed(self) -> Printed | None:
        """The published value of the test metric, if a paper has one for exactly these settings."""
        if self.experiment is None:
            return None
        same = (p for p in self.experiment.printed if (p.split, p.metric) == ("test", self.run.metric))
        return next((printed for printed in same if printed.value is not None), None)

    @property
    def fails(self) -> bool:
        """Whether some runs fail, because one diverged or because only some of them solve the task."""
        return self.diverged > 0 or (self.solved is not None and 0 < self.solved.reached < self.solved.seeds)


@dataclass(frozen=True)
class Condition:
    """A task with one set of task settings, and its variants, which can be compared with each other."""

    key: str
    task: str
    settings: dict[str, Any]
    metric: Metric
    baseline: float | None
    variants: list[VariantData]

    @property
    def task_name(self) -> str:
        """The name of the task for people."""
        return name_of_task(self.task)

    @property
    def data_name(self) -> str:
        """The name of the task, with its data set if that is not the one after which the task is named."""
        data = self.settings.get("dataset", self.task)
        return self.task_name if data == self.task else f"{self.task_name} ({data})"

    @property
    def perfect(self) -> float | None:
        """The perfect value of the main metric, which is None if a variant's is."""
        return self.metric.perfect([score for variant in self.variants for score in variant.scores], self.baseline)

    @property
    def title(self) -> str:
        """The task and its length for people, such as "adding, T = 200"."""
        length = self.settings.get("sequence_length")
        return f"{self.data_name}, T = {length}" if length else self.data_name

    def metric_named(self, name: str) -> Metric:
        """Return the metric with this name, or the main one if the name is empty or the runs do not declare it."""
        declared = self.variants[0].run.declared(name) if name and self.variants else None
        return declared or self.metric


def collect(store: Store, runs: Sequence[Run] | None = None, known: Sequence[Condition] = ()) -> list[Condition]:
    """Return the conditions of these runs (default: all runs) with all measurements, in the order of their start.

    Args:
        known: conditions that were read before, whose measurements are not read again.
    """
    runs = store.runs() if runs is None else runs
    if not runs:
        return []
    known_variants = {variant.run.variant: variant for condition in known for variant in condition.variants}
    members = {own[0].variant: [run.id for run in own] for own in group(runs, lambda run: run.variant)}
    kept = {
        key: variant
        for key, ids in members.items()
        if (variant := known_variants.get(key)) and {run.id for run in variant.runs}.issuperset(ids)
    }
    new = [run for run in runs if run.variant not in kept]
    ids = [run.id for run in new]
    metrics: dict[str, Mapping[SeriesName, Logged]] = {**metrics_by_variant(metric_columns(store, ids), new)}
    traces: dict[str, Mapping[str, Vectors]] = {**vectors_by_variant(trace_columns(store, ids), new)}
    for key, variant in kept.items():
        metrics[key] = _of_runs(variant.metrics, variant, members[key])
        traces[key] = _of_runs(variant.traces, variant, members[key])
    return [_condition(own, metrics, traces) for own in group(runs, lambda run: run.condition)]


def _of_runs(logged: Mapping[Name, Measured], variant: Variant, ids: Sequence[int]) -> Mapping[Name, Measured]:
    """Return what these runs of a variant have logged, without the names of which they have nothing."""
    if len(ids) == len(variant.runs):
        return logged
    own = {name: rows.of_runs(ids) for name, rows in logged.items()}
    return {name: rows for name, rows in own.items() if len(rows)}


def condition_of(runs: list[Run], key: str, members: list[VariantData]) -> Condition:
    """Return a condition with these variants, which all have the first run's task and metric."""
    first = runs[0]
    # Each run has the baseline of its own test sequences; a line in a figure is the typical one.
    baselines = [run.baselines[run.metric] for run in runs if run.metric in run.baselines]
    return Condition(
        key,
        first.task,
        first.spec["task_settings"],
        first.main_metric,
        statistics.median(baselines) if baselines else None,
        members,
    )


def _condition(
    runs: list[Run], metrics: Mapping[str, Mapping[SeriesName, Logged]], traces: Mapping[str, Mapping[str, Vectors]]
) -> Condition:
    members = [
        VariantData(
            own.label,
            own.runs,
            metrics[own.run.variant],
            traces[own.run.variant],
            _compare(own.run),
            differing=own.differing,
        )
        for own in variants(runs)
    ]
    return condition_of(runs, runs[0].condition, members)


def _compare(run: Run) -> NearestExperiment | None:
    settings = merged_settings(run.spec)
    listed = [NearestExperiment(each, each.differences(settings)) for each in experiments(run.task, run.model)]
    if not listed or all(candidate.differences for candidate in listed):
        return min(listed, key=lambda candidate: len(candidate.differences), default=None)
    # An experiment lists few settings, so a run that has them may still have ended earlier, or clip its gradient.
    whole = [
        NearestExperiment(candidate.experiment, _all_differences(candidate.experiment, settings))
        for candidate in listed
        if not candidate.differences
    ]
    return min(whole, key=lambda candidate: len(candidate.differences))


def _all_differences(experiment: Experiment, settings: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the settings in which a run differs from the experiment's run: by name, its value and the paper's value.

    Without a run, because the program lacks the model or task, no setting differs but those that the experiment lists.
    """
    spec = built_in()["specs"].get(experiment.identity)
    if spec is None:
        return experiment.differences(settings)
    printed = merged_settings(spec)
    names = sorted(settings.keys() | printed.keys())
    return {name: (settings.get(name), printed.get(name)) for name in names if settings.get(name) != printed.get(name)}
