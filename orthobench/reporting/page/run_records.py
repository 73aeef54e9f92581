"""The records of all runs as JSON: an index for the table of runs, and the details for the page of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.by_length import trained_range
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.judged import representatives
from orthobench.analysis.variants import settings_of
from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS, notation
from orthobench.reporting.account.account import Account
from orthobench.reporting.figures.decimate import thinned
from orthobench.reporting.figures.figure_json import CHART_DIGITS, DIGITS, PLACE_DIGITS, plain
from orthobench.reporting.figures.styles import Styles
from orthobench.store import Run, Status
from orthobench.store.result import CPU_SECONDS

POINTS, FEWEST_POINTS = 1_500, 24
"""Points per curve on a run's page with few runs and with thousands."""
FEWEST_ENTRIES = 64
"""Points per vector with thousands of runs. A vector, such as the gradients by every step, has more details than a
curve over epochs, and a run has only two measurements of each."""
POINTS_IN_ALL = 24_000
"""Points of one metric's curves in all runs together, because the page would grow with the number of runs: from 1,000
runs on, each curve has `FEWEST_POINTS`."""
EXPORTED = 100
"""Up to this number of points a curve keeps all whatever the number of runs, so that the page can export it."""
SHORT = 200
"""Characters of a message in the table of runs; the run's page shows all of it."""
SPLITS = "test valid train probe"
Axes = dict[tuple[float, ...], int]
"""The numbers of the x values of all curves, without duplicates, because most runs of a sweep share them."""


def run_index(account: Account, styles: Styles) -> dict[str, Any]:
    """Return the contents of the table of runs: conditions, variants with their settings, and a row for each run.

    The rows' columns are `COLUMNS`.
    """
    variants: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    titles: list[dict[str, Any]] = []
    for condition in account.by_task:
        metric = condition.metric
        titles.append(
            {
                "key": condition.key,
                "title": account.titles[condition.key],
                "label": account.labels[condition.key],
                "task": condition.task,
                "metric": metric.name,
                "axis": metric.axis,
                "goal": metric.goal,
                "baseline": condition.baseline,
            }
        )
        standing = representatives(condition).values()
        for variant in sorted(condition.variants, key=lambda each: (each.run.is_trial, each.runs[0].id)):
            rows += [_row(run, len(variants), variant) for run in variant.runs]
            run = variant.run
            variants.append(
                {
                    "key": run.variant,
                    "label": variant.label,
                    "model": run.model,
                    "condition": len(titles) - 1,
                    "color": styles.of(condition, variant).color,
                    "settings": settings_of(run),
                    "parameters": run.parameter_count,
                    "perEpoch": run.iterations_per_epoch,
                    "stands": any(variant is each for each in standing),
                }
            )
    return {"columns": COLUMNS, "conditions": titles, "variants": variants, "rows": rows}


COLUMNS = [
    "key",
    "variant",
    "seed",
    "status",
    "epochs",
    "iterations",
    "total",
    "end",
    "final",
    "best",
    "validated",
    "seconds",
    "started",
    "tags",
    "message",
]


def _row(run: Run, variant: int, data: VariantData) -> list[Any]:
    end = data.ends[run.id].value if run.id in data.ends else None
    return [
        run.key,
        variant,
        run.seed,
        run.status,
        run.epochs,
        run.iterations,
        run.total_iterations,
        end,
        run.final_value,
        run.best_test,
        run.at_best_validation,
        run.wall_seconds,
        run.created_at.isoformat(" ", "minutes"),
        run.tags,
        (run.message or "")[:SHORT],
    ]


def sweep_records(sweeps: Sequence[Mapping[str, Any]], runs: Sequence[Run]) -> list[list[dict[str, Any]]]:
    """Return the runs of the sweeps that train now, with their states: planned, running or ended.

    A run is planned until it is written to after its sweep has begun.
    """
    stored = {run.key: run for run in runs}

    def state(key: str, began: datetime) -> str:
        run = stored.get(key)
        if run is not None and run.status == Status.RUNNING:
            return "running"
        return "planned" if run is None or run.updated_at < began else "ended"

    return [
        [run | {"state": state(run["key"], datetime.fromisoformat(sweep["began"]))} for run in sweep["runs"]]
        for sweep in sweeps
    ]


def run_details(condition: Condition, points: int) -> dict[str, Any]:
    """Return the facts, settings and curves of a condition's runs; the x of a curve is its number in `axes`."""
    runs: dict[str, Any] = {}
    axes: Axes = {}
    for variant in condition.variants:
        curves = _curves(variant, axes, points)
        traces = _traces(variant, axes, max(points, FEWEST_ENTRIES))
        trained = trained_range(variant)
        for run in variant.runs:
            runs[run.key] = {
                "facts": {
                    "status": run.status,
                    "message": run.message,
                    "tags": ", ".join(run.tags) or None,
                    "best iteration": run.best_iteration,
                    "iterations": f"{run.iterations:,} of {run.total_iterations:,}",
                    "device": run.device,
                    "backend": run.backend,
                    "started": run.created_at.isoformat(" ", "minutes"),
                },
                "solved": run.solved_at,
                "phases": run.phases | {name: value for name, value in run.seconds.items() if name == CPU_SECONDS},
                "untimed": run.untimed or None,
                "memory": run.peak_memory,
                "spec": run.spec,
                "environment": run.environment.digest,
                "perEpoch": run.iterations_per_epoch,
                "curves": curves.get(run.id, []),
                "traces": traces.get(run.id, []),
                "trained": trained,
            }
    return {"runs": runs, "axes": [plain(axis, PLACE_DIGITS) for axis in axes]}


def points_for(count: int) -> int:
    """Return the number of points per curve for this number of runs."""
    return max(FEWEST_POINTS, min(POINTS, POINTS_IN_ALL // max(count, 1)))


def _curves(variant: VariantData, axes: Axes, limit: int) -> dict[int, list[dict[str, Any]]]:
    """Return a curve for every metric with more than one value, by the run's id."""
    curves: dict[int, list[dict[str, Any]]] = {}
    for split, name in sorted(variant.metrics, key=lambda series: (SPLITS.find(series[0]), series)):
        logged = variant.metrics[split, name]
        for run, (start, end) in zip(logged.runs.tolist(), pairwise(logged.bounds.tolist()), strict=True):
            if (count := end - start) > 1:
                title, most = f"{split} {notation(name)}", count if count <= EXPORTED else limit
                curve = _curve(title, logged.iteration[start:end], logged.value[start:end], axes, most, DIGITS)
                curves.setdefault(run, []).append(curve)
    return curves


def _traces(variant: VariantData, axes: Axes, limit: int) -> dict[int, list[dict[str, Any]]]:
    """Return the first and the last logged value of every vector, by the run's id."""
    curves: dict[int, list[dict[str, Any]]] = {}
    axis = variant.traces.get(LENGTHS)
    lengths = {} if axis is None else dict(zip(zip(axis.run, axis.iteration, strict=True), axis.values, strict=True))
    for name, logged in variant.traces.items():
        if name in (LENGTHS, TRAINED_LENGTHS):
            continue
        is_new = np.append(True, logged.run[1:] != logged.run[:-1])
        chosen = logged.at(is_new | np.append(is_new[1:], True))  # the first and the last row of each run
        rows = zip(chosen.run.tolist(), chosen.iteration, chosen.epoch.tolist(), chosen.numbers(), strict=True)
        for run, iteration, epoch, values in rows:
            is_by_length = name.startswith(f"{BY_LENGTH}/")
            x = lengths[run, iteration] if is_by_length else np.arange(1, 1 + len(values))
            curves.setdefault(run, []).append(_curve(f"{name}, epoch {epoch}", x, values, axes, limit, CHART_DIGITS))
    return curves


def _curve(name: str, x: NDArray[Any], y: NDArray[np.float64], axes: Axes, limit: int, digits: int) -> dict[str, Any]:
    """Return a curve, with its number of points if some are left out (`of`)."""
    points = thinned(y, limit)
    place = axes.setdefault(tuple(x[points].tolist()), len(axes))
    left_out = {"of": len(y)} if len(points) < len(y) else {}
    return {"name": name, "x": place, "y": plain(y[points], CHART_DIGITS if left_out else digits), **left_out}
