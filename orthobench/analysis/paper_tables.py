"""Compare a paper's published tables with the measured values, with a verdict on every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd

from orthobench.analysis.aggregates import (
    Aggregate,
    Basis,
    PublishedTarget,
    aggregate,
    agreement_basis,
    chance_level,
    scaled,
)
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import FEWEST_SEEDS, Agreement, CurveEnd, Median, Summary, median, summarize
from orthobench.analysis.variants import of_one_machine
from orthobench.errors import counted, shell_command
from orthobench.metric import Metric
from orthobench.papers import Aggregation, Artifact, Column, Experiment, Paper, Printed, find_study
from orthobench.store import Benchmark, Run, Status
from orthobench.store.result import CLOCK, CPU_SECONDS, EVENTS


@dataclass(frozen=True)
class Tolerance:
    """How far a mean may differ from a published number and still agree with it (the equivalence test's margin)."""

    of_fractions: float
    relative: float
    factor: float

    def target(
        self, printed: Printed, values: Sequence[float], metric: Metric | None, is_scaled: bool
    ) -> PublishedTarget:
        """Return a published number with its margin in the metric's unit.

        Args:
            values: the measured values, which show whether the metric is ever negative.
        """
        value, error = printed.value or 0.0, printed.error or 0.0
        low, high = metric.bounds([value, *values]) if metric else (-math.inf, math.inf)
        if metric and metric.is_fraction:
            return PublishedTarget(value, self.of_fractions, error, low=-math.inf if is_scaled else low, high=high)
        if metric and metric.name in SPAN_DECADES and min([value, *values]) > 0:
            return PublishedTarget(value, self.factor, error, is_logarithmic=True, low=low)
        margin = self.relative * abs(value) or self.relative
        return PublishedTarget(value, margin, error, low=low, high=high)


TOLERANCE = Tolerance(of_fractions=0.005, relative=0.02, factor=1.5)
SPAN_DECADES = ("mse", "rmse", "cross_entropy")
"""Errors on synthetic tasks. Seeds differ by factors, so the errors are compared as logarithms."""
CHANCE_SHARE = 0.1
"""A published accuracy that covers less than this share of the way from chance to perfect is at chance."""
UNPUBLISHED = "settings not published"
"""What stands in place of a verdict where no source states the settings that decide the result."""
Limit = Literal["", "at the ceiling", "at chance", "at the baseline"]
NOTHING_STATED = Aggregation()
BENCHMARK = "orthobench bench --models"
"""The command that times the models of a paper's table of times."""
TIMES = {"minutes_per_epoch": 60.0, "seconds_per_epoch": 1.0}


RULES = {
    "last": "end: median of the last tenth of the tests",
    "curve": "end: median of the last tenth of the tests",
    "final": "last test",
    "early_stopped": "last test, at which training stops, so chosen by the test data",
    "best_test": "best test, so chosen by the test data",
    "best_valid": "at the best validation",
}
"""The papers' rules for choosing among a run's evaluations, in words."""


@dataclass(frozen=True)
class TableCell:
    """A published result and the measured values, which the paper's own rule selects.

    Attributes:
        measured: the number over the runs, computed as the published one was; if the paper does not say how, the mean
            over the finished runs.
        aggregation: how the published number was computed.
        verdict: the result of `analysis.aggregates.aggregate`, or why there is no test, such as "settings not
            published".
        reason: an explanation of the verdict, with its numbers.
        better: if the value differs, whether it is better; None without the metric's declaration.
        limit: "at the ceiling", "at chance" or "at the baseline", where models that learn nothing of interest may also
            end; else empty.
        target: the published number with its margin; None without a number.
        variant: the measured runs.
        final: the mean of the last evaluations.
        median: if some runs fail, the median over the finished and the diverged runs.
        by_validation: if the rule is the best test, the mean of the values at the best validation.
    """

    printed: Printed
    experiment: Experiment | None
    measured: Aggregate | None
    verdict: str
    command: str | None
    reason: str = ""
    better: bool | None = None
    variant: VariantData | None = None
    final: Summary | None = None
    median: Median | None = None
    by_validation: Summary | None = None
    aggregation: Aggregation = NOTHING_STATED
    limit: Limit = ""
    target: PublishedTarget | None = None

    @property
    def is_settled(self) -> bool:
        """Whether the published number holds."""
        return self.verdict in ("agrees", "within the spread")

    @property
    def is_confirmed(self) -> bool:
        """Whether the published number holds where a broken model would not reach it."""
        return self.is_settled and not self.limit

    @property
    def is_refuted(self) -> bool:
        """Whether the published number does not hold."""
        return self.verdict in ("differs", "outside the spread")

    @property
    def runs(self) -> list[str]:
        """The keys of the finished and diverged runs, on which the verdict rests; empty for a benchmark."""
        runs = self.variant.runs if self.variant else []
        return [run.key for run in runs if run.key and Status(run.status).is_final]

    @property
    def evidence(self) -> tuple[str, str, str, float | None] | None:
        """What identifies a measured number that several papers print: its runs, and what was read from them."""
        if self.variant is None or self.measured is None:
            return None
        return self.variant.run.variant, self.printed.split, self.printed.metric, self.printed.value

    @property
    def tags(self) -> list[str]:
        return self.variant.tags if self.variant else []

    @property
    def words(self) -> str:
        """The verdict with its direction and limit; a number that models without memory reach does not agree."""
        if self.is_settled and self.limit in ("at chance", "at the baseline"):
            return f"{self.limit}, as published"
        direction = {True: ", better", False: ", worse", None: ""}[self.better]
        whose = " of our runs" if self.verdict.endswith("the spread") else ""
        limit = f", {self.limit}" if self.limit and self.verdict != UNPUBLISHED else ""
        return f"{self.verdict}{whose}{direction}{limit}"

    @property
    def rule(self) -> str:
        """A description of the rule that selects each run's value; empty for times and without runs."""
        is_chosen = self.experiment and self.measured and self.printed.metric not in TIMES
        return RULES[self.aggregation.selection or "curve"] if is_chosen else ""

    @property
    def is_chosen_by_test(self) -> bool:
        """Whether the test data select each run's value."""
        return bool(self.rule) and self.aggregation.selection in ("best_test", "early_stopped")

    @property
    def printed_text(self) -> str:
        """The published result, and how it was computed if the paper says so."""
        words = self.aggregation.words if self.printed.value is not None else ""
        return f"{self.printed.text} ({words})" if words else self.printed.text

    @property
    def difference(self) -> float | None:
        """The measured minus the published number; None without either."""
        if self.measured is None or self.printed.value is None:
            return None
        return self.measured.value - self.printed.value

    @property
    def tolerances(self) -> float | None:
        """The measured minus the published number, in units of the tolerance; None without either."""
        if self.measured is None or self.target is None:
            return None
        return self.target.units(self.measured.value)


@dataclass(frozen=True)
class TableRow:
    """A row of a table; `cells` by the label of their column."""

    label: str
    model: str
    parameters: str
    cells: Mapping[str, TableCell]
    notes: tuple[str, ...]

    @property
    def is_measured(self) -> bool:
        return any(cell.measured is not None for cell in self.cells.values())


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, with published and measured results."""

    paper: Paper
    artifact: Artifact
    columns: list[Column]
    rows: list[TableRow]

    @property
    def cells(self) -> list[TableCell]:
        return [cell for row in self.rows for cell in row.cells.values()]


def build_table(paper: Paper, artifact: Artifact, measured: Mapping[str, VariantData]) -> PaperTable:
    """Build the table of an artifact; `measured` has the variants of the experiments with runs, by identity."""
    rows: dict[str, TableRow] = {}
    for experiment in paper.experiments_in(artifact.name):
        for printed in experiment.printed_in(artifact.name):
            column = next((column for column in artifact.columns if column.holds(experiment, printed)), None)
            if column is None:
                continue
            cell = _cell(artifact, experiment, printed, measured.get(experiment.identity))
            row = rows.get(experiment.label)
            before: Mapping[str, TableCell] = row.cells if row else {}
            notes = dict.fromkeys((*(row.notes if row else ()), *experiment.notes))
            label, model = experiment.label, experiment.model
            rows[label] = TableRow(label, model, experiment.parameters, {**before, column.label: cell}, tuple(notes))
    for other in paper.elsewhere:
        if other.artifact == artifact.name:
            cells = {
                column.label: TableCell(
                    printed,
                    None,
                    None,
                    "not run here",
                    None,
                    aggregation=printed.aggregation.upon(artifact.aggregation),
                )
                for column in artifact.columns
                for printed in other.printed
                if (printed.metric, printed.split) == (column.metric, column.split)
                and (not printed.column or printed.column == column.label)
            }
            rows[other.label] = TableRow(other.label, "", "", cells, (other.reason,))
    printed_order = {label: number for number, label in enumerate(artifact.rows)}
    ordered = sorted(rows.values(), key=lambda row: printed_order.get(row.label, len(printed_order)))
    return PaperTable(paper, artifact, artifact.columns, ordered)


def timed_steps(record: Benchmark, experiments: Sequence[Experiment]) -> dict[str, VariantData]:
    """Return a variant for each experiment that `orthobench bench --models` has timed, by the experiment's identity.

    Each round of the benchmark stands for a seed, and takes an epoch of training. The rounds of all rows alternate, so
    their times compare. These runs have no key, because they are stored nowhere.

    Args:
        record: the record of the benchmark.
    """
    rows = {
        (row["model"], row["hidden_size"]): row
        for shape in record.results["shapes"]
        for row in shape["rows"]
        if row["printed"] is not None
    }
    clocks = ("train", CPU_SECONDS) if record.results.get("clock") == CPU_SECONDS else ("train",)
    timed = {}
    for experiment in experiments:
        row = rows.get((experiment.model, experiment.settings.get("hidden_size")))
        if row is None:
            continue
        epoch = 60 * row["minutes"] / row["seconds"]  # in steps
        runs = [
            Run(
                id=number,
                key="",
                variant=f"{BENCHMARK}: {experiment.identity}",
                condition="",
                task=experiment.task,
                model=experiment.model,
                seed=number,
                spec={"model_settings": experiment.model_settings, "training": {}},
                status=Status.FINISHED,
                environment=record.environment,
                device=record.results["device"],
                metric="accuracy",
                goal="max",
                baselines={},
                iterations=1,
                total_iterations=1,
                iterations_per_epoch=1,
                seconds=dict.fromkeys(clocks, sample["seconds"] * epoch) | {CLOCK: EVENTS},
            )
            for number, sample in enumerate(row["samples"])
        ]
        timed[experiment.identity] = VariantData(experiment.label, runs, {}, {}, None)
    return timed


def fill_command(
    artifact: Artifact, wanted: Sequence[Experiment], among: Sequence[Experiment] = (), seeds: int = FEWEST_SEEDS
) -> str:
    """Return the command that runs the models of these experiments in a table or figure; empty without experiments.

    If a benchmark measures the table, it is the command of the benchmark.

    Args:
        among: all experiments of the table or figure, if they are known; a command for all models names none.
        seeds: the fewest seeds; as many as the paper has go before fewer.
    """
    if not wanted:
        return ""
    study = find_study(artifact.study) if artifact.study else None
    if study and study.benchmark:
        return shell_command("bench", f"--{study.benchmark}")
    kind, _, number = artifact.name.partition(" ")
    option, name = (f"--{kind}", number) if kind in ("table", "figure") else ("--table", artifact.name)
    most = max(seeds, *(experiment.aggregation.upon(artifact.aggregation).seeds or 0 for experiment in wanted))
    models = dict.fromkeys(experiment.model for experiment in wanted)
    is_whole = models.keys() >= {experiment.model for experiment in among} and bool(among)
    named = [] if is_whole else ["--models", ",".join(models)]
    return shell_command("reproduce", wanted[0].paper, option, name, *named, "--seeds", most)


def values(variant: VariantData, selection: str, metric: str, split: str) -> list[float]:
    """Return a metric of every finished run with a finite value (`values_by_run`)."""
    return list(values_by_run(variant, selection, metric, split).values())


def values_by_run(variant: VariantData, selection: str, metric: str, split: str) -> dict[int, float]:
    """Return a metric of every finished run at the evaluation that the paper's rule selects, by the run's id.

    Args:
        selection: "best_test" and "best_valid" select the evaluation where the task's main metric is best on that
            split, "final" and "early_stopped" the last one, and anything else the end
            (`analysis.statistics.curve_end`).
        metric: a metric's name, or a time (`TIMES`), which belongs to the run itself.
    """
    if metric in TIMES:
        seconds = {run.id: run.seconds_per_epoch for run in of_one_machine(variant.finished)}
        return {run: value / TIMES[metric] for run, value in seconds.items() if value}
    split_of_best = {"best_test": "test", "best_valid": "valid"}.get(selection)
    logged = variant.series_of_runs(split, metric)
    if split_of_best:
        ranks, goal = variant.series_of_runs(split_of_best, variant.run.metric), variant.run.main_metric.goal
        selected = {run: _at_best(curve, ranks.get(run), goal) for run, curve in logged.items()}
    elif selection in ("final", "early_stopped"):
        selected = {run: float(curve.iloc[-1]) for run, curve in logged.items()}
    else:
        selected = {run: end.value for run, end in variant.ends_of(split, metric).items()}
    return {run: value for run, value in selected.items() if math.isfinite(value)}


def _at_best(curve: pd.Series, ranking: pd.Series | None, goal: str) -> float:
    """Return the value of a run's curve at the iteration that ranks best; NaN if there is none.

    If a metric is measured only once, after the last iteration, the result is that value, whatever the ranking.
    """
    if len(curve) == 1:
        return float(curve.iloc[-1])
    ranks = ranking.dropna() if ranking is not None else None
    if ranks is None or ranks.empty:
        return math.nan
    return float(curve.get(ranks.idxmin() if goal == "min" else ranks.idxmax(), math.nan))


def _cell(artifact: Artifact, experiment: Experiment, printed: Printed, variant: VariantData | None) -> TableCell:
    how, command = experiment.aggregation_of(printed, artifact), fill_command(artifact, [experiment])
    is_time = printed.metric in TIMES
    if is_time and variant and variant.finished:
        timed = of_one_machine(variant.finished)
        if not timed:
            return TableCell(
                printed, experiment, None, "not measured", command, variant.finished[0].untimed, aggregation=how
            )
        # A new cache, because the old one holds the curves of all runs.
        variant = replace(variant, runs=timed, cache={})
    chance = _chance(how, printed, variant)

    def selected(rule: str | None) -> dict[int, float]:
        chosen = values_by_run(variant, rule or "curve", printed.metric, printed.split) if variant else {}
        return chosen if chance is None else {run: scaled(value, chance) for run, value in chosen.items()}

    chosen = selected(how.selection)
    metric = variant.run.declared(printed.metric) if variant else None
    everything = _with_diverged(variant, chosen, metric) if variant else []
    finite = [value for value in everything if math.isfinite(value)]
    target = TOLERANCE.target(printed, finite, metric, bool(how.scaled))
    judged = aggregate(everything, how, metric, target)
    if variant is None or judged is None or (how.scaled and chance is None):
        outcome = "diverged" if variant and variant.diverged == len(variant.runs) else "not measured"
        if judged is not None:
            outcome = "no chance level to scale by"
        return TableCell(printed, experiment, None, outcome, command, aggregation=how)
    measured, agreement = judged
    decided, why, has_number = _verdict(printed, experiment, agreement), "", printed.value is not None and not is_time
    if is_time:
        rounds = "" if variant.run.key else f", {counted(len(variant.runs), 'round')} of `{BENCHMARK}`"
        why = f"measured on {variant.timed_on}{rounds}"
    elif printed.value is not None:
        is_end = how.selection in ("last", "curve") and not how.scaled
        ends = variant.ends_of(printed.split, printed.metric) if is_end else {}
        basis = agreement_basis(everything, measured, agreement, how, target)
        why = _reason(basis, measured, printed.number, target, everything, list(ends.values()))
    cell = TableCell(
        printed,
        experiment,
        measured,
        decided,
        None,
        why,
        None,
        variant,
        None if is_time else summarize(list(selected("final").values())),
        median(everything) if variant.fails and not is_time else None,
        summarize(list(selected("best_valid").values())) if how.selection == "best_test" and not is_time else None,
        how,
        _limit(target, metric, 0.0 if how.scaled else variant.run.baselines.get(printed.metric)) if has_number else "",
        target if has_number else None,
    )
    difference = cell.difference
    if cell.is_refuted and metric and difference is not None:
        return replace(cell, better=metric.sign * difference < 0)
    return cell


def _verdict(printed: Printed, experiment: Experiment, agreement: Agreement) -> str:
    """Return the verdict, or why there is none."""
    if printed.value is None:
        return "no published number"
    if printed.metric in TIMES:
        return "another machine"
    return UNPUBLISHED if experiment.own_settings else agreement


def _limit(target: PublishedTarget, metric: Metric | None, baseline: float | None) -> Limit:
    """Return whether a published number is as good as perfect, or hardly better than the best one without memory.

    Hardly better: less than a tenth of the way to a perfect score, or so near that a measured baseline would agree.
    """
    if metric is None:
        return ""
    if metric.is_fraction and metric.goal == "max":
        if target.value >= 1 - TOLERANCE.of_fractions:
            return "at the ceiling"
        gained = scaled(target.value, baseline) if baseline is not None and baseline < 1 else math.inf
        return "at chance" if gained < CHANCE_SHARE or _is_near(target, baseline) else ""
    if metric.goal != "min" or baseline is None or baseline <= 0:
        return ""
    is_no_better = 1 - target.value / baseline < CHANCE_SHARE or _is_near(target, baseline)
    return "at the baseline" if is_no_better else ""


def _is_near(target: PublishedTarget, value: float | None) -> bool:
    """Return whether a value is within the tolerance of a published number."""
    return value is not None and (value > 0 or not target.is_logarithmic) and abs(target.units(value)) <= 1


def _chance(how: Aggregation, printed: Printed, variant: VariantData | None) -> float | None:
    """Return the chance accuracy by which a published number is scaled; None if it is not scaled or not known."""
    if not how.scaled or variant is None:
        return None
    return chance_level(variant.run.baselines.get(printed.metric)) if how.chance is None else how.chance


def _with_diverged(variant: VariantData, chosen: Mapping[int, float], metric: Metric | None) -> list[float]:
    """Return the values in the order of the seeds, with the worst value for each diverged run."""
    worst = metric.worst if metric else math.inf
    diverged = {run.id: worst for run in variant.runs if run.status == Status.DIVERGED}
    everything = diverged | dict(chosen)
    return [everything[run.id] for run in sorted(variant.runs, key=lambda run: run.seed) if run.id in everything]


def _reason(
    basis: Basis,
    measured: Aggregate,
    printed: str,
    target: PublishedTarget,
    everything: Sequence[float],
    ends: Sequence[CurveEnd],
) -> str:
    """Return what decides a verdict, with the interval, the tolerance, and the seeds and last tests within it."""
    margin = f"× or ÷ {target.margin:g}" if target.is_logarithmic else f"± {target.margin:.2g}"
    tests = [_is_near(target, test) for end in ends for test in end.tests]
    near = sum(_is_near(target, value) for value in everything)
    parts = [
        f"{basis}: {measured.interval}" if measured.interval else basis,
        f"published: {printed} {margin}",
        f"seeds within: {near} of {len(everything)}",
        *([f"last tests within: {sum(tests) / len(tests):.0%}"] if tests else []),
    ]
    return "; ".join(parts)
