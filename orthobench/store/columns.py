"""Metric values as columns, for reports: they read hundreds of thousands, and arrays need a tenth of rows' memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sqlalchemy import select, type_coerce
from sqlalchemy.types import NullType

from orthobench.store.store import Store
from orthobench.store.tables import MetricValue

ROWS_AT_ONCE = 50_000
"""Rows that are Python's objects at a time."""
TYPES: tuple[set[type], ...] = ({int}, {str}, {str}, {int}, {float, int, type(None)}, {str, type(None)})
"""The types in the columns of the query."""


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


def metric_columns(store: Store, run_ids: Sequence[int]) -> MetricColumns:
    """Return the metric values of these runs; values that are not finite are restored from their `kind`.

    Raises:
        ValueError: a value is of another type than its column, which SQLite allows.
    """
    order = (MetricValue.run_id, MetricValue.split, MetricValue.name, MetricValue.iteration)
    fields = (*order, MetricValue.value, MetricValue.kind)
    query = select(*(type_coerce(field, NullType()) for field in fields))  # the types are checked by the column
    query = query.where(MetricValue.run_id.in_(run_ids)).order_by(*order)
    splits: dict[str, int] = {}
    names: dict[str, int] = {}
    parts: list[tuple[NDArray[Any], ...]] = [tuple(np.zeros(0, kind) for kind in (int, int, int, int, float))]
    with store._read() as session:
        for rows in session.connection().execute(query).partitions(ROWS_AT_ONCE):
            columns = tuple(zip(*rows, strict=True))
            for column, types in zip(columns, TYPES, strict=True):
                _check(column, types)
            run, split, name, iteration, value, kind = columns
            numbers = np.array(value, dtype=float)  # NaN for None
            if any(kind):
                for row, (number, word) in enumerate(zip(value, kind, strict=True)):
                    if number is None and word:
                        numbers[row] = float(word)
            codes = [_codes(texts, known) for texts, known in ((split, splits), (name, names))]
            parts.append((np.array(run), *codes, np.array(iteration), numbers))
    return MetricColumns(list(splits), list(names), *(np.concatenate(column) for column in zip(*parts, strict=True)))


def _codes(texts: Sequence[str], known: dict[str, int]) -> NDArray[np.int64]:
    """Return the number of each text in `known`, which gets the new texts."""
    positions, different = pd.factorize(np.array(texts, dtype=object))
    numbers = np.array([known.setdefault(text, len(known)) for text in different])
    return numbers[positions]


def _check(column: Sequence[Any], types: set[type]) -> None:
    """Refuse values of other types.

    Raises:
        ValueError: a value is of another type.
    """
    if not set(map(type, column)) <= types:
        wrong = next(value for value in column if type(value) not in types)
        raise ValueError(f"{wrong!r:.40} is not of its column's type")
