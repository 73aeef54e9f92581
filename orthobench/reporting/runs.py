"""The records of all runs as JSON: an index for the table of runs, and the details for the page of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.over_length import trained_range
from orthobench.analysis.variants import settings_of
from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS
from orthobench.reporting.decimate import WHOLE, Indices, thinned
from orthobench.reporting.packed import digits, packed
from orthobench.reporting.pages import full_title
from orthobench.reporting.styles import Styles
from orthobench.store import Run, Status
from orthobench.store.result import CLOCK

POINTS, FEWEST_POINTS, DIGITS = WHOLE, 24, 4
"""Points per curve on a run's page with few runs and with thousands, and digits of the numbers."""
FEWEST_ENTRIES = 64
"""Points per vector with thousands of runs. A vector, such as the gradients by every step, has more details than a
curve over epochs, and a run has only two measurements of each."""
POINTS_IN_ALL = 24_000
SHORT = 200
"""Characters of a message in the table of runs; the run's page shows all of it."""
SPLITS = "test valid train probe"


def run_index(conditions: Sequence[Condition], styles: Styles, labels: Mapping[str, str]) -> dict[str, Any]:
    """Return the contents of the table of runs: conditions, variants with their settings, and a row for each run.

    The rows' columns are `COLUMNS`.

    Args:
        labels: a short name of each condition, by its key.
    """
    variants: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    titles: list[dict[str, Any]] = []
    for condition in conditions:
        metric = condition.metric
        titles.append(
            {
                "key": condition.key,
                "title": full_title(condition, conditions),
                "label": labels[condition.key],
                "task": condition.task,
                "metric": metric.name,
                "axis": metric.axis,
                "goal": metric.goal,
                "baseline": condition.baseline,
            }
        )
        for variant in sorted(condition.variants, key=lambda variant: variant.runs[0].id):
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
        run.best_value,
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
    """Return the facts, settings and curves of a condition's runs, and the axes of the curves."""
    runs: dict[str, Any] = {}
    axes = Axes()
    for variant in condition.variants:
        curves = dict(iter(variant.curves.groupby("run")))
        traces = dict(iter(variant.traces.groupby("run")))
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
                "phases": {name: value for name, value in run.seconds.items() if name != CLOCK},
                "memory": run.peak_memory,
                "spec": run.spec,
                "environment": run.environment.digest,
                "perEpoch": run.iterations_per_epoch,
                "curves": _curves(curves.get(run.id), axes, points),
                "traces": _traces(traces.get(run.id), axes, max(points, FEWEST_ENTRIES)),
                "trained": trained,
            }
    return {"runs": runs, "axes": axes.packed}


def points_for(count: int) -> int:
    """Return the number of points per curve for this number of runs."""
    return max(FEWEST_POINTS, min(POINTS, POINTS_IN_ALL // max(count, 1)))


class Axes:
    """The x values of all curves without duplicates, because most runs of a sweep share them."""

    def __init__(self) -> None:
        self.packed: list[dict[str, str]] = []
        self._numbers: dict[str, int] = {}

    def number(self, values: ArrayLike) -> int:
        """Return the index of these values in `packed`."""
        packed_values = packed(values)
        number = self._numbers.setdefault(packed_values["bdata"], len(self.packed))
        if number == len(self.packed):
            self.packed.append(packed_values)
        return number


def _curves(rows: pd.DataFrame | None, axes: Axes, limit: int) -> list[dict[str, Any]]:
    """Return a curve for every metric with more than one value."""
    if rows is None:
        return []
    splits, names = (rows[column].to_numpy(object) for column in ("split", "name"))
    values, iterations = (rows[column].to_numpy(float) for column in ("value", "iteration"))
    # Rows are ordered by split, name and iteration, so a series is a slice. pandas' groupby would be slower.
    bounds = np.flatnonzero((splits[1:] != splits[:-1]) | (names[1:] != names[:-1])) + 1
    curves = []
    for first, end in sorted(
        pairwise([0, *bounds.tolist(), len(values)]), key=lambda stretch: SPLITS.find(splits[stretch[0]])
    ):
        if end - first > 1:
            points = first + thinned(values[first:end], limit)
            name = f"{splits[first]} {names[first]}"
            curves.append(
                {
                    "name": name,
                    "x": axes.number(iterations[points]),
                    "y": digits(values[points], DIGITS),
                    **_missing(end - first, points),
                }
            )
    return curves


def _traces(rows: pd.DataFrame | None, axes: Axes, limit: int) -> list[dict[str, Any]]:
    """Return the first and the last logged value of every vector."""
    if rows is None:
        return []
    logged: dict[str, list[tuple[int, int, Sequence[float]]]] = {}
    for name, epoch, iteration, values in zip(
        rows["name"], rows["epoch"], rows["iteration"], rows["values"], strict=True
    ):
        logged.setdefault(str(name), []).append((iteration, epoch, values))
    lengths = {iteration: values for iteration, _, values in logged.pop(LENGTHS, [])}
    logged.pop(TRAINED_LENGTHS, None)
    traces = []
    for name, vectors in logged.items():
        vectors.sort(key=lambda vector: vector[0])
        for number in sorted({0, len(vectors) - 1}):
            iteration, epoch, vector = vectors[number]
            values = np.asarray(vector, dtype=float)
            points = thinned(values, limit)
            is_by_length = name.startswith(f"{BY_LENGTH}/")
            x = np.asarray(lengths[iteration])[points] if is_by_length else points + 1
            traces.append(
                {
                    "name": f"{name}, epoch {epoch}",
                    "x": axes.number(x),
                    "y": digits(values[points], DIGITS),
                    **_missing(len(values), points),
                }
            )
    return traces


def _missing(count: int, points: Indices) -> dict[str, int]:
    """Return the number of points of a curve if some are left out."""
    return {"of": count} if len(points) < count else {}
