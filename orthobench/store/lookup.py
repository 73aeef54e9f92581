"""Look up the results of runs by the command that asked for them (its request), without SQLAlchemy."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from orthobench.location import Location
from orthobench.metric import Metric
from orthobench.store.connect import connect
from orthobench.store.result import Status, seconds_per_epoch

BATCH = 500
"""Requests per query, because SQLite limits the number of values in a query."""
JSON_COLUMNS = ("spec", "metrics", "baselines", "seconds")


@dataclass(frozen=True)
class StoredResult:
    """A run with a result: columns of `Run`, under the same names."""

    request: str
    key: str
    variant: str
    task: str
    model: str
    seed: int
    spec: dict[str, Any]
    status: str
    message: str | None
    metric: str
    goal: str
    metrics: dict[str, Any] | None
    baselines: dict[str, float]
    parameter_count: int
    final_value: float | None
    best_value: float | None
    iterations: int
    iterations_per_epoch: int
    seconds: dict[str, float]

    @property
    def main_metric(self) -> Metric:
        return Metric.main(self.metric, self.goal, self.metrics)

    @property
    def seconds_per_epoch(self) -> float | None:
        return seconds_per_epoch(self.seconds, self.iterations, self.iterations_per_epoch)


def stored_results(database: Location, requests: Iterable[str]) -> dict[tuple[str, int], StoredResult]:
    """Return the runs of these requests that have a result, by request and seed.

    The result is empty for a server's database, a file with an older schema, and a file that cannot be read.
    """
    file, names = Path(database.real), list(dict.fromkeys(requests))
    results: dict[tuple[str, int], StoredResult] = {}
    if database.is_url or not file.is_file():
        return {}
    columns = [field.name for field in fields(StoredResult)]
    final = [status for status in Status if status.is_final]
    try:
        with connect(file, mode="ro") as connection:
            for start in range(0, len(names), BATCH):
                some = names[start : start + BATCH]
                query = f"SELECT {', '.join(columns)} FROM run WHERE request IN ({_marks(some)})"
                query += f" AND status IN ({_marks(final)}) AND iterations_per_epoch > 0"
                for row in connection.execute(query, (*some, *final)):
                    result = StoredResult(**_decoded(dict(zip(columns, row, strict=True))))
                    results[result.request, result.seed] = result
    except (sqlite3.Error, ValueError, TypeError, RecursionError):  # the usual way of opening explains the error
        return {}
    return results


def _marks(values: Iterable[object]) -> str:
    return ", ".join("?" for _ in values)


def _decoded(row: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: json.loads(value) if name in JSON_COLUMNS and value is not None else value for name, value in row.items()
    }
