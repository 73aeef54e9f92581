"""The records of all runs as JSON: an index for the table of runs, and the details for the page of each run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.test_lengths import trained_range
from orthobench.analysis.variants import settings_of
from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS, notation
from orthobench.reporting.figures.decimate import WHOLE, thinned_curves
from orthobench.reporting.figures.styles import Styles
from orthobench.reporting.page.names import full_title
from orthobench.reporting.page.packed_figures import WholeNumbers, decimal_codes, packed_array
from orthobench.store import Run, Status
from orthobench.store.result import CPU_SECONDS, UNTIMED

POINTS, FEWEST_POINTS, DIGITS = WHOLE, 24, 4
"""Points per curve on a run's page with few runs and with thousands, and digits of the numbers."""
VECTOR_DIGITS = 3
"""Digits of the numbers of vectors, which are most of the numbers of a page: a chart shows no more."""
FEWEST_ENTRIES = 64
"""Points per vector with thousands of runs. A vector, such as the gradients by every step, has more details than a
curve over epochs, and a run has only two measurements of each."""
POINTS_IN_ALL = 24_000
LARGEST = 2**31
"""The first whole number that 32 bits with a sign cannot hold."""
EXPORTED = 100
"""Up to this number of points a curve keeps all whatever the number of runs, so that the page can export it."""
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


def run_details(condition: Condition, points: int) -> bytes:
    """Return the facts, settings and curves of a condition's runs, packed (`WholeNumbers`).

    The x of a curve is an axis, which is the place and the count of its values. Its y is the place of its first code
    (`decimal_codes`).
    """
    runs: dict[str, Any] = {}
    numbers = WholeNumbers()
    axes = Axes(numbers)
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
                "untimed": None if run.is_timed else UNTIMED,
                "memory": run.peak_memory,
                "spec": run.spec,
                "environment": run.environment.digest,
                "perEpoch": run.iterations_per_epoch,
                "curves": curves.get(run.id, []),
                "traces": traces.get(run.id, []),
                "trained": trained,
            }
    return numbers.packed({"runs": runs, "axes": axes.places, "digits": {"curves": DIGITS, "traces": VECTOR_DIGITS}})


def points_for(count: int) -> int:
    """Return the number of points per curve for this number of runs.

    It changes in steps of a third or a half, so that one more run seldom changes the curves of all others.
    """
    most = min(POINTS, POINTS_IN_ALL // max(count, 1))
    steps = (step for size in range(most.bit_length()) for step in (2**size, 2**size * 3 // 2) if step <= most)
    return max(FEWEST_POINTS, *steps) if most < POINTS else POINTS


class Axes:
    """The x values of all curves without duplicates, because most runs of a sweep share them.

    Attributes:
        numbers: receives the values that are whole numbers of 32 bits.
        places: the place and the count of each axis in `numbers`; for other values the values (`packed`).
    """

    def __init__(self, numbers: WholeNumbers) -> None:
        self.numbers = numbers
        self.places: list[tuple[int, int] | dict[str, str]] = []
        self._known: dict[bytes, int] = {}

    def number(self, values: NDArray[Any]) -> int:
        """Return the index of these values in `places`."""
        number = self._known.setdefault(values.astype(float).tobytes(), len(self.places))
        if number == len(self.places):
            is_whole = bool((np.abs(values) < LARGEST).all() and (values == np.rint(values)).all())
            whole = values.astype(np.int64) if is_whole else None
            self.places.append(packed_array(values) if whole is None else (self.numbers.add(whole), len(whole)))
        return number


def _curves(variant: VariantData, axes: Axes, limit: int) -> dict[int, list[dict[str, Any]]]:
    """Return a curve for every metric with more than one value, by the run's id."""
    curves = Curves()
    for split, name in sorted(variant.metrics, key=lambda series: (SPLITS.find(series[0]), series)):
        logged, title = variant.metrics[split, name], f"{split} {notation(name)}"
        counts = np.diff(logged.bounds).tolist()
        names = [title if count > 1 else None for count in counts]
        curves.add(names, logged.runs.tolist(), logged.iteration, logged.value, counts)
    return curves.drawn(axes, DIGITS, limit, EXPORTED)


def _traces(variant: VariantData, axes: Axes, limit: int) -> dict[int, list[dict[str, Any]]]:
    """Return the first and the last logged value of every vector, by the run's id."""
    curves = Curves()
    axis = variant.traces.get(LENGTHS)
    lengths = {} if axis is None else dict(zip(zip(axis.run, axis.iteration, strict=True), axis.values, strict=True))
    for name, logged in variant.traces.items():
        if name in (LENGTHS, TRAINED_LENGTHS):
            continue
        is_new = np.append(True, logged.run[1:] != logged.run[:-1])
        chosen = logged.at(is_new | np.append(is_new[1:], True))  # the first and the last row of each run
        counts = [len(values) for values in chosen.values]
        if name.startswith(f"{BY_LENGTH}/"):
            x = [lengths[place] for place in zip(chosen.run, chosen.iteration, strict=True)]
        else:
            x = [np.arange(1, count + 1) for count in counts]
        names = [f"{name}, epoch {epoch}" for epoch in chosen.epoch.tolist()]
        curves.add(names, chosen.run.tolist(), np.concatenate(x), np.concatenate(chosen.numbers()), counts)
    return curves.drawn(axes, VECTOR_DIGITS, limit)


class Curves:
    """The curves of a variant's runs, which are thinned and coded at once, because most of them are short."""

    def __init__(self) -> None:
        self._names: list[str | None] = []
        self._runs: list[int] = []
        self._counts: list[int] = []
        self._x: list[NDArray[Any]] = [np.zeros(0)]
        self._y: list[NDArray[np.float64]] = [np.zeros(0)]

    def add(
        self,
        names: Sequence[str | None],
        runs: Sequence[int],
        x: NDArray[Any],
        y: NDArray[np.float64],
        counts: Sequence[int],
    ) -> None:
        """Add a curve of `counts` points for each of these runs; a curve without a name is not drawn."""
        self._names += names
        self._runs += runs
        self._counts += counts
        self._x.append(x)
        self._y.append(y)

    def drawn(self, axes: Axes, digits: int, limit: int, whole: int = 0) -> dict[int, list[dict[str, Any]]]:
        """Return the points of the curves by the run's id, with a curve's number of points if some are left out (`of`).

        Args:
            whole: a curve of up to this number of points keeps all.
        """
        x, y = np.concatenate(self._x), np.concatenate(self._y)
        points, ends = thinned_curves(y, np.concatenate(([0], np.cumsum(self._counts, dtype=np.intp))), limit, whole)
        places, first = x[points], axes.numbers.add(decimal_codes(y[points], digits))
        curves: dict[int, list[dict[str, Any]]] = {}
        for name, run, count, (start, end) in zip(
            self._names, self._runs, self._counts, pairwise(ends.tolist()), strict=True
        ):
            if name is not None:
                curve = {"name": name, "x": axes.number(places[start:end]), "y": first + start}
                curves.setdefault(run, []).append(curve | ({"of": count} if end - start < count else {}))
        return curves
