"""The records of all runs as JSON, from which the page's script fills a run's own page."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from orthobench.analysis.conditions import Condition
from orthobench.reporting.decimate import thinned
from orthobench.reporting.styles import Styles

POINTS = 150
"""Points of each curve on a run's page."""
SPLITS = "test valid train probe"


def run_records(conditions: Sequence[Condition], styles: Styles) -> dict[str, Any]:
    """Return all runs by key, their environments by digest, and the curves' axes by number."""
    runs: dict[str, Any] = {}
    axes = Axes()
    environments: dict[str, Any] = {}
    for condition in conditions:
        for variant in condition.variants:
            color = styles.of_model(variant.run.model).color
            curves = dict(iter(variant.curves.groupby("run")))
            traces = dict(iter(variant.traces.groupby("run")))
            for run in variant.runs:
                environments[run.environment.digest] = run.environment.facts
                runs[run.key] = {
                    "label": variant.label,
                    "condition": condition.title,
                    "task": run.task,
                    "model": run.model,
                    "seed": run.seed,
                    "status": run.status,
                    "message": run.message,
                    "tags": ", ".join(run.tags) or None,
                    "metric": run.metric,
                    "end": variant.ends[run.id].value if run.id in variant.ends else None,
                    "final": run.final_value,
                    "best": run.best_value,
                    "best_iteration": run.best_iteration,
                    "iterations": f"{run.iterations} of {run.total_iterations}",
                    "parameters": run.parameter_count,
                    "device": run.device,
                    "backend": run.backend,
                    "seconds": run.seconds,
                    "peak_memory": run.peak_memory,
                    "started": run.created_at.isoformat(" ", "minutes"),
                    "spec": run.spec,
                    "environment": run.environment.digest,
                    "color": color,
                    "curves": _curves(curves.get(run.id), axes),
                    "traces": _traces(traces.get(run.id), axes),
                }
    return {"runs": runs, "environments": environments, "axes": axes.packed}


class Axes:
    """The x values of all curves, each once: most runs of a sweep share them."""

    def __init__(self) -> None:
        self.packed: list[dict[str, str]] = []
        self._numbers: dict[str, int] = {}

    def number(self, values: ArrayLike) -> int:
        """Return the index of these values in `packed`."""
        packed = _packed(values)
        number = self._numbers.setdefault(packed["bdata"], len(self.packed))
        if number == len(self.packed):
            self.packed.append(packed)
        return number


def _curves(rows: pd.DataFrame | None, axes: Axes) -> list[dict[str, Any]]:
    """Return a curve for every metric with more than one value."""
    if rows is None:
        return []
    splits, names = (rows[column].to_numpy(object) for column in ("split", "name"))
    values, iterations = (rows[column].to_numpy(float) for column in ("value", "iteration"))
    # Rows are ordered by split, name and iteration: a series is a stretch of them. pandas' groups would be slower.
    bounds = np.flatnonzero((splits[1:] != splits[:-1]) | (names[1:] != names[:-1])) + 1
    curves = []
    for first, end in sorted(
        pairwise([0, *bounds.tolist(), len(values)]), key=lambda stretch: SPLITS.find(splits[stretch[0]])
    ):
        if end - first > 1:
            points = first + thinned([values[first:end]], POINTS)
            name = f"{splits[first]} {names[first]}"
            curves.append({"name": name, "x": axes.number(iterations[points]), "y": _packed(values[points])})
    return curves


def _traces(rows: pd.DataFrame | None, axes: Axes) -> list[dict[str, Any]]:
    """Return the first and the last logged value of every vector."""
    if rows is None:
        return []
    logged: dict[str, list[tuple[int, int, Sequence[float]]]] = {}
    for name, epoch, iteration, values in zip(
        rows["name"], rows["epoch"], rows["iteration"], rows["values"], strict=True
    ):
        logged.setdefault(str(name), []).append((iteration, epoch, values))
    traces = []
    for name, vectors in logged.items():
        vectors.sort(key=lambda vector: vector[0])
        for number in sorted({0, len(vectors) - 1}):
            _, epoch, vector = vectors[number]
            values = np.asarray(vector, dtype=float)
            points = thinned([values], POINTS)
            label = f"{name}, epoch {epoch}"
            traces.append({"name": label, "x": axes.number(points + 1), "y": _packed(values[points])})
    return traces


def _packed(values: ArrayLike) -> dict[str, str]:
    """Return a typed array as Plotly reads it."""
    return {"dtype": "f4", "bdata": base64.b64encode(np.asarray(values, dtype="<f4").tobytes()).decode()}
