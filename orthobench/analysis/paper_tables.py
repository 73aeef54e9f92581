"""Set a paper's printed tables beside the measured values, with a verdict on every cell."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.statistics import Summary, summarize
from orthobench.metric import Metric
from orthobench.papers import Artifact, Column, Experiment, Paper, Printed

FRACTION_TOLERANCE, RELATIVE_TOLERANCE = 0.005, 0.02
TIMES = {"minutes_per_epoch": 60.0, "seconds_per_epoch": 1.0}


@dataclass(frozen=True)
class Cell:
    """A printed result and the measured values, chosen by the paper's own rule."""

    printed: Printed
    experiment: Experiment | None
    measured: Summary | None
    verdict: str
    command: str | None
    runs: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    @property
    def difference(self) -> float | None:
        """Return measured minus printed; None without either."""
        if self.measured is None or self.printed.value is None:
            return None
        return self.measured.mean - self.printed.value


@dataclass(frozen=True)
class Row:
    """A row of a table; `cells` by the label of their column."""

    label: str
    model: str
    parameters: str
    cells: Mapping[str, Cell]
    notes: tuple[str, ...]


@dataclass(frozen=True)
class PaperTable:
    """A table of a paper, printed beside measured."""

    paper: Paper
    artifact: Artifact
    columns: list[Column]
    rows: list[Row]

    @property
    def cells(self) -> list[Cell]:
        return [cell for row in self.rows for cell in row.cells.values()]


def make_table(paper: Paper, artifact: Artifact, measured: Mapping[str, VariantData]) -> PaperTable:
    """Return the table of an artifact; `measured` has the variants of the experiments that ran, by identity."""
    rows: dict[str, Row] = {}
    for experiment in paper.experiments_in(artifact.name):
        for printed in experiment.printed_in(artifact.name):
            column = next((column for column in artifact.columns if column.holds(experiment, printed)), None)
            if column is None:
                continue
            cell = _cell(experiment, printed, measured.get(experiment.identity), fill_command(artifact, experiment))
            row = rows.get(experiment.label)
            before: Mapping[str, Cell] = row.cells if row else {}
            notes = dict.fromkeys((*(row.notes if row else ()), *experiment.notes))
            label, model = experiment.label, experiment.model
            rows[label] = Row(label, model, experiment.parameters, {**before, column.label: cell}, tuple(notes))
    for other in paper.elsewhere:
        if other.artifact == artifact.name:
            cells = {
                column.label: Cell(printed, None, None, "not run here", None)
                for column in artifact.columns
                for printed in other.printed
                if (printed.metric, printed.split) == (column.metric, column.split)
                and (not printed.column or printed.column == column.label)
            }
            rows[other.label] = Row(other.label, "", "", cells, (other.reason,))
    return PaperTable(paper, artifact, artifact.columns, list(rows.values()))


def fill_command(artifact: Artifact, experiment: Experiment) -> str:
    """Return the command that runs an experiment and the others of its model in the table or figure."""
    kind, _, number = artifact.name.partition(" ")
    option = f"--{kind} {number}" if kind in ("table", "figure") else f'--table "{artifact.name}"'
    return f"orthobench reproduce {experiment.paper} {option} --models {experiment.model} --seeds 3"


def values(variant: VariantData, selection: str, metric: str, split: str) -> list[float]:
    """Return a metric of every finished run, at the evaluation that the paper's rule selects.

    Args:
        selection: "best_test" and "best_valid": where the task's main metric is best on that split; else the last.
        metric: a metric's name, or a time (`TIMES`), which is the run's own.
    """
    if metric in TIMES:
        seconds = [run.seconds_per_epoch for run in variant.finished]
        return [value / TIMES[metric] for value in seconds if value is not None]
    best = {"best_test": "test", "best_valid": "valid"}.get(selection)
    ranking = variant.series(best, variant.run.metric) if best else None
    rows = variant.series(split, metric)
    selected = (_selected(ranking, rows, run.id, variant.run.main_metric.goal) for run in variant.finished)
    return [value for value in selected if value is not None and math.isfinite(value)]


def _selected(ranking: pd.DataFrame | None, rows: pd.DataFrame, run: int, goal: str) -> float | None:
    values = _by_iteration(rows, run)
    if values.empty:
        return None
    if ranking is None or len(values) == 1:  # a metric measured once, after the last iteration
        return float(values.iloc[-1])
    ranks = _by_iteration(ranking, run).dropna()
    if ranks.empty:
        return None
    at = ranks.idxmin() if goal == "min" else ranks.idxmax()
    return float(values.get(at, math.nan))


def _by_iteration(rows: pd.DataFrame, run: int) -> pd.Series:
    """Return the values of a run, by iteration."""
    return rows[rows["run"] == run].set_index("iteration")["value"].astype(float).sort_index()


def _cell(experiment: Experiment, printed: Printed, variant: VariantData | None, command: str) -> Cell:
    measured = summarize(values(variant, experiment.selection, printed.metric, printed.split) if variant else [])
    if variant is None or measured is None:
        verdict = "diverged" if variant and variant.diverged == len(variant.runs) else "not measured"
        return Cell(printed, experiment, None, verdict, command)
    keys = tuple(run.key for run in variant.runs)
    verdict = _verdict(printed, measured, variant.run.declared(printed.metric))
    return Cell(printed, experiment, measured, verdict, None, keys, tuple(variant.tags))


def _verdict(printed: Printed, measured: Summary, metric: Metric | None) -> str:
    """Return in words whether the printed value lies within the mean's interval or the tolerance, else which is better.

    Without the metric's declaration the verdict is "differs".
    """
    if printed.value is None:
        return "no number printed"
    if printed.metric in TIMES:
        return "another machine"
    difference = measured.mean - printed.value
    if measured.half_width is not None and abs(difference) <= measured.half_width:
        return "within the interval"
    tolerance = FRACTION_TOLERANCE if metric and metric.is_fraction else RELATIVE_TOLERANCE * abs(printed.value)
    if abs(difference) <= tolerance:
        return "within the tolerance"
    if metric is None:
        return "differs"
    return "better" if metric.sign * difference < 0 else "worse"
