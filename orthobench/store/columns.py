"""Metric values as columns: reports read hundreds of thousands, and arrays need a tenth of the memory of rows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import and_, func, select, type_coerce
from sqlalchemy.orm import Session
from sqlalchemy.types import NullType

from orthobench.errors import DamagedError
from orthobench.store.damage import UNEXPECTED
from orthobench.store.reader import Reader
from orthobench.store.tables import Series, StoredMetric

ROWS_AT_ONCE = 50_000
"""Rows that are held as Python objects at a time."""
SERIES_TYPES: tuple[set[type], ...] = ({int}, {str}, {str}, {int})
VALUE_TYPES: tuple[set[type], ...] = ({int}, {float, int, type(None)}, {str, type(None)})
"""The types in the columns of the two queries."""


@dataclass(frozen=True)
class MetricColumns:
    """Metric values `[rows]`, sorted by run, split, name and iteration.

    Attributes:
        split: indices into `splits`.
        name: indices into `names`.
    """

    splits: list[str]
    names: list[str]
    run: NDArray[np.int64]
    split: NDArray[np.int64]
    name: NDArray[np.int64]
    iteration: NDArray[np.int64]
    value: NDArray[np.float64]


def metric_columns(store: Reader, run_ids: Sequence[int]) -> MetricColumns:
    """Return the metric values of these runs; values that are not finite are restored from their `kind`.

    SQLite stores values of any type in any column. Rows with a value of the wrong type are left out with a warning.
    """
    with store.snapshot() as session:
        try:
            return _read(session, run_ids, [])
        except (*UNEXPECTED, DamagedError):
            broken = store.broken_rows(session.connection(), StoredMetric)
            if not broken:
                raise
            return _read(session, run_ids, broken)


def _read(session: Session, run_ids: Sequence[int], broken: Sequence[int]) -> MetricColumns:
    """Return the metric values of these runs without the broken rows.

    Raises:
        ValueError: a value does not have the type of its column.
    """
    series = (StoredMetric.run_id, Series.split, Series.name)
    chosen = and_(StoredMetric.run_id.in_(run_ids), StoredMetric.id.not_in(broken))
    counts = select(*_unchecked(*series), func.count()).join_from(StoredMetric, Series, isouter=True)
    counts = counts.where(chosen).group_by(*series).order_by(*series)
    values = select(*_unchecked(StoredMetric.iteration, StoredMetric.value, StoredMetric.kind))
    values = values.join_from(StoredMetric, Series, isouter=True)
    values = values.where(chosen).order_by(*series, StoredMetric.iteration)
    iterations, numbers = [np.zeros(0, int)], [np.zeros(0)]
    connection = session.connection()
    run, split, name, lengths = _columns(connection.execute(counts).all(), SERIES_TYPES)
    for rows in connection.execute(values).partitions(ROWS_AT_ONCE):
        iteration, value, kind = _columns(rows, VALUE_TYPES)
        numbers.append(np.array(value, dtype=float))  # NaN for None
        if any(kind):
            for row, (number, word) in enumerate(zip(value, kind, strict=True)):
                if number is None and word:
                    numbers[-1][row] = float(word)
        iterations.append(np.array(iteration))
    splits, split_codes = _codes(split)
    names, name_codes = _codes(name)
    runs, of_split, of_name = (np.repeat(np.array(column, int), lengths) for column in (run, split_codes, name_codes))
    return MetricColumns(splits, names, runs, of_split, of_name, np.concatenate(iterations), np.concatenate(numbers))


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
