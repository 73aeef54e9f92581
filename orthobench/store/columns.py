"""Logged numbers and vectors as columns: reports read millions, and arrays need a tenth of the memory of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import ColumnElement, func, select, type_coerce
from sqlalchemy.orm import Session
from sqlalchemy.types import NullType

from orthobench.store.blocks import unpack_arrays
from orthobench.store.reader import Reader
from orthobench.store.tables import Series, StoredMetric, StoredTrace

ROWS_AT_ONCE = 50_000
"""Rows that are held as Python objects at a time."""
RUNS_AT_ONCE = 10_000
"""Runs of a query, because a statement of SQLite has at most 32,766 parameters by default."""
SERIES_TYPES: tuple[set[type], ...] = ({int}, {int}, {str}, {str}, {int})
VALUE_TYPES: tuple[set[type], ...] = ({int}, {float, int, type(None)}, {str, type(None)})
TRACE_TYPES: tuple[set[type], ...] = ({int}, {int}, {int}, {bytes})
"""The types in the columns of the queries."""

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class MetricColumns:
    """Metric values `[rows]`, sorted by run, split, name and iteration. A *curve* is one metric of one run.

    Attributes:
        run_of: the run of each curve `[curves]`.
        split_of: indices into `splits`.
        name_of: indices into `names`.
        bounds: the first row of each curve, and the number of rows `[curves + 1]`.
    """

    splits: list[str]
    names: list[str]
    run_of: Integers
    split_of: Integers
    name_of: Integers
    bounds: Integers
    iteration: Integers
    value: NDArray[np.float64]

    @property
    def run(self) -> Integers:
        """The run of each row."""
        return np.repeat(self.run_of, np.diff(self.bounds))

    @property
    def split(self) -> Integers:
        """The index of each row's split."""
        return np.repeat(self.split_of, np.diff(self.bounds))

    @property
    def name(self) -> Integers:
        """The index of each row's name."""
        return np.repeat(self.name_of, np.diff(self.bounds))

    def ordered(self, curves: Integers) -> MetricColumns:
        """Return these curves in this order."""
        rows, bounds = rows_in_order(self.bounds, curves)
        return MetricColumns(
            self.splits,
            self.names,
            self.run_of[curves],
            self.split_of[curves],
            self.name_of[curves],
            bounds,
            self.iteration[rows],
            self.value[rows],
        )


@dataclass(frozen=True)
class TraceColumns:
    """Logged vectors `[rows]`, sorted by run, name and iteration.

    Attributes:
        name: indices into `names`.
        values: a vector in single precision for each row.
    """

    names: list[str]
    run: Integers
    name: Integers
    epoch: Integers
    iteration: Integers
    values: NDArray[np.object_]


def rows_in_order(bounds: Integers, parts: Integers) -> tuple[Integers, Integers]:
    """Return the rows of these parts of a table in this order, and the bounds of the parts among them.

    Args:
        bounds: the first row of each part, and the number of rows.
    """
    lengths = np.diff(bounds)[parts]
    new = np.concatenate(([0], np.cumsum(lengths)))
    return np.repeat(bounds[:-1][parts] - new[:-1], lengths) + np.arange(new[-1]), new


def metric_columns(
    store: Reader, run_ids: Sequence[int], split: str | None = None, name: str | None = None
) -> MetricColumns:
    """Return the metric values of these runs; values that are not finite are restored from their `kind`.

    Args:
        split: restrict to "train", "test", "valid" or "probe".
        name: restrict to this metric.

    Raises:
        DamagedError: a value cannot be read.
    """
    only = [field == value for field, value in ((Series.split, split), (Series.name, name)) if value is not None]
    with store.snapshot() as session:
        return _read_metrics(session, run_ids, only)


def trace_columns(store: Reader, run_ids: Sequence[int]) -> TraceColumns:
    """Return the vectors of these runs.

    Raises:
        DamagedError: a value cannot be read.
    """
    with store.snapshot() as session:
        return _read_traces(session, run_ids)


def _read_metrics(session: Session, run_ids: Sequence[int], only: Sequence[ColumnElement[bool]] = ()) -> MetricColumns:
    """Return the metric values of these runs.

    Args:
        only: conditions on the series.

    Raises:
        ValueError: a value does not have the type of its column.
    """
    curve = (StoredMetric.run_id, StoredMetric.series_id)
    counts = select(*_unchecked(*curve, Series.split, Series.name), func.count())
    # An outer join, because a value without its series has to fail the check of types instead of vanishing.
    counts = counts.join_from(StoredMetric, Series, isouter=True)
    counts = counts.group_by(*curve, Series.split, Series.name).order_by(*curve)
    values = select(*_unchecked(StoredMetric.iteration, StoredMetric.value, StoredMetric.kind))
    values = values.order_by(*curve, StoredMetric.iteration)  # the order of the index, so that nothing is sorted
    iterations, numbers = [np.zeros(0, int)], [np.zeros(0)]
    curves: list[list[Any]] = [[] for _ in SERIES_TYPES]
    connection = session.connection()
    series = [StoredMetric.series_id.in_(select(Series.id).where(*only))] if only else []
    for ids in _parts(run_ids):
        chosen = StoredMetric.run_id.in_(ids), *series
        for known, new in zip(
            curves, _columns(connection.execute(counts.where(*chosen)).all(), SERIES_TYPES), strict=True
        ):
            known.extend(new)
        for rows in connection.execute(values.where(*chosen)).partitions(ROWS_AT_ONCE):
            iteration, value, kind = _columns(rows, VALUE_TYPES)
            numbers.append(np.array(value, dtype=float))  # NaN for None
            if any(kind):
                for at, (number, word) in enumerate(zip(value, kind, strict=True)):
                    if number is None and word:
                        numbers[-1][at] = float(word)
            iterations.append(np.array(iteration))
    run, _, split, name, lengths = curves
    starts = np.concatenate(([0], np.cumsum(np.array(lengths, int))))
    order = np.array(sorted(range(len(run)), key=lambda at: (run[at], split[at], name[at])), dtype=int)
    splits, split_codes = _codes([split[at] for at in order])
    names, name_codes = _codes([name[at] for at in order])
    row, bounds = rows_in_order(starts, order)
    return MetricColumns(
        splits,
        names,
        np.array(run, int)[order],
        np.array(split_codes, int),
        np.array(name_codes, int),
        bounds,
        np.concatenate(iterations)[row],
        np.concatenate(numbers)[row],
    )


def _read_traces(session: Session, run_ids: Sequence[int]) -> TraceColumns:
    """Return the vectors of these runs.

    Raises:
        ValueError: a value does not have the type of its column, or a block is damaged.
    """
    row = StoredTrace
    query = select(*_unchecked(row.run_id, row.epoch, row.iteration, row.vectors))
    query = query.order_by(row.run_id, row.iteration, row.id)
    texts: list[str] = []
    facts: list[tuple[int, int, int]] = []
    vectors: list[NDArray[np.float32]] = []
    for ids in _parts(run_ids):
        # Fewer rows at once, because each block unpacks to many numbers.
        for rows in session.connection().execute(query.where(row.run_id.in_(ids))).partitions(ROWS_AT_ONCE // 100):
            for run, epoch, iteration, block in zip(*_columns(rows, TRACE_TYPES), strict=True):
                for text, vector in unpack_arrays(block).items():
                    texts.append(text)
                    facts.append((run, epoch, iteration))
                    vectors.append(vector)
    run, epoch, iteration = np.array(facts, int).reshape(-1, 3).T
    # Not `np.array`, because vectors of equal length would become a matrix.
    values = np.fromiter(vectors, object, len(vectors))
    names = sorted(set(texts))
    numbers = {text: number for number, text in enumerate(names)}
    name = np.array([numbers[text] for text in texts], int)
    order = np.lexsort((iteration, name, run))
    return TraceColumns(names, run[order], name[order], epoch[order], iteration[order], values[order])


def _parts(run_ids: Sequence[int]) -> Iterator[list[int]]:
    """Yield the ids in ascending order, in parts for one query each."""
    ids = sorted(run_ids)
    for start in range(0, len(ids), RUNS_AT_ONCE):
        yield ids[start : start + RUNS_AT_ONCE]


def _unchecked(*fields: Any) -> Iterator[Any]:
    """Return the columns without SQLAlchemy's check of each value; `_columns` checks them."""
    return (type_coerce(field, NullType()) for field in fields)


def _codes(texts: Sequence[str]) -> tuple[list[str], list[int]]:
    """Return the distinct texts in order of first appearance, and the index of each text among them."""
    known: dict[str, int] = {}
    codes = [known.setdefault(text, len(known)) for text in texts]
    return list(known), codes


def _columns(rows: Sequence[Sequence[Any]], types: tuple[set[type], ...]) -> list[Sequence[Any]]:
    """Return the columns of rows.

    Raises:
        ValueError: a value does not have the type of its column.
    """
    columns: list[Sequence[Any]] = list(zip(*rows, strict=True)) or [()] * len(types)
    for column, allowed in zip(columns, types, strict=True):
        if not set(map(type, column)) <= allowed:
            wrong = next(value for value in column if type(value) not in allowed)
            raise ValueError(f"{wrong!r:.40} is not of its column's type")
    return columns
