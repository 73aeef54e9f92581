"""Query a database in SQL, with the traces as rows."""

from __future__ import annotations

import json
import math
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from sqlalchemy import Engine
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import UsageError
from orthobench.store.blocks import unpack
from orthobench.store.merge import opened_unchanged
from orthobench.store.open import driver_message
from orthobench.store.sqlite import connect, damaged, is_damage
from orthobench.store.views import definitions
from orthobench.system.location import Place

TRACES_FLAT = """
SELECT
    run.key AS run, run.task, run.model, run.seed, trace.epoch, trace.iteration, vector.key AS name,
    entry.key AS position, entry.value
FROM trace JOIN run ON run.id = trace.run_id, json_each(vectors_as_json(trace.vectors)) AS vector,
    json_each(vector.value) AS entry
"""
FORBIDDEN = {sqlite3.SQLITE_ATTACH, sqlite3.SQLITE_DETACH, sqlite3.SQLITE_PRAGMA}
"""Actions of a query that would reach another file, or change how this one is read."""


class Table(NamedTuple):
    """The answer to a query: the names of its columns, and its rows."""

    columns: list[str]
    rows: Sequence[tuple[Any, ...]]


def query(place: Place, sql: str) -> Table:
    """Return the answer to one SQL query; nothing can be written through it.

    A SQLite database has the view `traces_flat` in addition to its own tables and views: a row for each entry of each
    vector, at its position from 0. An entry that is not finite is null.

    Raises:
        UsageError: the database cannot be read, or the query is none.
        DamagedError: the file is damaged.
    """
    with opened_unchanged(place) as store:
        file = store.location.file
        return _server(store.engine, sql) if file is None else _file(file, sql)


def _file(file: Path, sql: str) -> Table:
    # Not through SQLAlchemy, because this package's connections take an unknown column for a damaged schema.
    with connect(file, mode="ro") as connection:
        connection.create_function("vectors_as_json", 1, _vectors_as_json, deterministic=True)
        # The file's own views are hidden, because it may come from elsewhere: SQLite calls no function for its views.
        for name, view in {**definitions("sqlite"), "traces_flat": TRACES_FLAT}.items():
            connection.execute(f"CREATE TEMP VIEW {name} AS {view}")
        connection.execute("PRAGMA query_only = ON")
        connection.set_authorizer(_authorize)
        # Ctrl-C reaches a long query only while Python code runs, because SQLite does not look at signals.
        connection.set_progress_handler(lambda: 0, 100_000)
        try:
            cursor = connection.execute(sql)
            table = Table([name for name, *_ in cursor.description or ()], cursor.fetchall())
        except (sqlite3.Error, sqlite3.Warning, UnicodeDecodeError) as error:
            if is_damage(error):
                raise damaged(file, str(error)) from error
            raise _not_answered(error) from error
        finally:
            connection.set_authorizer(None)
    return _answer(table)


def _server(engine: Engine, sql: str) -> Table:
    try:
        with engine.connect().execution_options(postgresql_readonly=True, no_parameters=True) as connection:
            result = connection.exec_driver_sql(sql)
            return _answer(Table(list(result.keys()), [tuple(row) for row in result]) if result.returns_rows else None)
    except SQLAlchemyError as error:
        raise _not_answered(driver_message(error)) from error


def _answer(table: Table | None) -> Table:
    if table is None or not table.columns:
        raise _not_answered("it returns no rows")
    return table


def _not_answered(problem: object) -> UsageError:
    return UsageError(f"this query cannot be answered: {problem}; docs/runs.md lists tables, views and examples")


def _authorize(action: int, *_: object) -> int:
    return sqlite3.SQLITE_DENY if action in FORBIDDEN else sqlite3.SQLITE_OK


def _vectors_as_json(block: bytes) -> str:
    vectors = unpack(block)
    return json.dumps({name: [x if math.isfinite(x) else None for x in values] for name, values in vectors.items()})
