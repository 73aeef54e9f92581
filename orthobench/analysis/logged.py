"""What the runs of a variant have logged, as columns: the values of a metric, and the vectors of a probe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from orthobench.store import Run
from orthobench.store.columns import Integers, MetricColumns, TraceColumns, rows_in_order

Values = NDArray[np.float64]
SeriesName = tuple[str, str]
"""The split and the name of a metric."""


@dataclass(frozen=True)
class Logged:
    """The values of one metric `[rows]`, run by run, and of a run in the order of iterations.

    Attributes:
        runs: the ids of the runs with values `[runs]`.
        bounds: the first row of each run, and the number of rows `[runs + 1]`.
    """

    runs: Integers
    bounds: Integers
    iteration: Integers
    value: Values

    @staticmethod
    def of(run: ArrayLike, iteration: ArrayLike, value: ArrayLike) -> Logged:
        """Return the values of rows in any order."""
        run, iteration, value = np.asarray(run, int), np.asarray(iteration, int), np.asarray(value, float)
        # The run comes last, because lexsort sorts by its last key first.
        order = np.lexsort((iteration, run))
        runs, starts = np.unique(run[order], return_index=True)
        return Logged(runs, np.append(starts, len(run)), iteration[order], value[order])

    def __len__(self) -> int:
        return len(self.value)

    @property
    def run(self) -> Integers:
        """The run of each row."""
        return np.repeat(self.runs, np.diff(self.bounds))

    @cached_property
    def _rows_of(self) -> dict[int, slice]:
        bounds = self.bounds.tolist()
        return dict(zip(self.runs.tolist(), map(slice, bounds, bounds[1:]), strict=True))

    def of_runs(self, ids: Sequence[int]) -> Logged:
        """Return the values of these runs alone."""
        chosen = np.flatnonzero(np.isin(self.runs, ids))
        rows, bounds = rows_in_order(self.bounds, chosen)
        return Logged(self.runs[chosen], bounds, self.iteration[rows], self.value[rows])

    def curve(self, run: int) -> tuple[Integers, Values] | None:
        """Return the iterations and the values of a run; None without any."""
        rows = self._rows_of.get(run)
        return None if rows is None else (self.iteration[rows], self.value[rows])


NOTHING = Logged.of([], [], [])
"""The values of a metric that no run has."""


@dataclass(frozen=True)
class Vectors:
    """The vectors of one name `[rows]`, run by run, and of a run in the order of iterations.

    Attributes:
        values: a vector for each row.
    """

    run: Integers
    epoch: Integers
    iteration: Integers
    values: NDArray[np.object_]

    @staticmethod
    def of(rows: Sequence[tuple[int, int, int, ArrayLike]]) -> Vectors:
        """Return the vectors of rows of run, epoch, iteration and values, in any order."""
        run, epoch, iteration = np.array([row[:3] for row in rows], int).reshape(-1, 3).T
        order = np.lexsort((iteration, run))
        # Not np.array, because it would join vectors of equal length into a matrix.
        values = np.fromiter((np.asarray(row[3], float) for row in rows), object, len(rows))
        return Vectors(run[order], epoch[order], iteration[order], values[order])

    def __len__(self) -> int:
        return len(self.values)

    def at(self, rows: slice | NDArray[np.intp] | NDArray[np.bool_] | Sequence[int]) -> Vectors:
        """Return these rows."""
        rows = np.asarray(rows, int) if isinstance(rows, Sequence) else rows
        return Vectors(self.run[rows], self.epoch[rows], self.iteration[rows], self.values[rows])

    def numbers(self) -> list[Values]:
        """Return the vectors in double precision."""
        return [np.asarray(vector, float) for vector in self.values]

    def of_runs(self, ids: Sequence[int]) -> Vectors:
        """Return the vectors of these runs alone."""
        return self.at(np.isin(self.run, ids))

    def of_run(self, run: int) -> slice:
        """Return the rows of a run."""
        start, end = np.searchsorted(self.run, [run, run + 1])
        return slice(int(start), int(end))


def metrics_by_variant(columns: MetricColumns, runs: Sequence[Run]) -> dict[str, dict[SeriesName, Logged]]:
    """Return the values of each metric of each variant, by the variant's key."""
    keys, numbers = _variants(columns.run_of, runs)
    order = np.lexsort((columns.run_of, columns.name_of, columns.split_of, numbers))
    columns, numbers = columns.ordered(order), numbers[order]
    logged: dict[str, dict[SeriesName, Logged]] = {key: {} for key in keys}
    for first, end in _stretches(numbers, columns.split_of, columns.name_of):
        bounds = columns.bounds[first : end + 1]
        rows = slice(bounds[0], bounds[-1])
        series = columns.splits[columns.split_of[first]], columns.names[columns.name_of[first]]
        logged[keys[numbers[first]]][series] = Logged(
            columns.run_of[first:end], bounds - bounds[0], columns.iteration[rows], columns.value[rows]
        )
    return logged


def vectors_by_variant(columns: TraceColumns, runs: Sequence[Run]) -> dict[str, dict[str, Vectors]]:
    """Return the vectors of each name of each variant, by the variant's key; the names are in alphabetical order."""
    keys, numbers = _variants(columns.run, runs)
    order = np.lexsort((columns.iteration, columns.run, columns.name, numbers))
    names, numbers = columns.name[order], numbers[order]
    rows = Vectors(columns.run, columns.epoch, columns.iteration, columns.values).at(order)
    vectors: dict[str, dict[str, Vectors]] = {key: {} for key in keys}
    for first, end in _stretches(numbers, names):
        vectors[keys[numbers[first]]][columns.names[names[first]]] = rows.at(slice(first, end))
    return vectors


def named(vectors: Mapping[str, Vectors], beginning: str) -> dict[str, Vectors]:
    """Return the vectors whose names begin so."""
    return {name: own for name, own in vectors.items() if name.startswith(beginning)}


def _variants(ids: Integers, runs: Sequence[Run]) -> tuple[list[str], Integers]:
    """Return the keys of the variants of these runs in their order, and the variant of each id as an index of them."""
    keys = list(dict.fromkeys(run.variant for run in runs))
    number_of = {key: number for number, key in enumerate(keys)}
    ordered = sorted(runs, key=lambda run: run.id)
    of_run = np.array([number_of[run.variant] for run in ordered], int)
    return keys, of_run[np.searchsorted(np.array([run.id for run in ordered], int), ids)]


def _stretches(*columns: Integers) -> Iterator[tuple[int, int]]:
    """Yield the first row and the end of each stretch of rows that are equal in all columns."""
    if len(columns[0]):
        changes = np.any([column[1:] != column[:-1] for column in columns], axis=0)
        yield from pairwise([0, *(np.flatnonzero(changes) + 1).tolist(), len(columns[0])])
