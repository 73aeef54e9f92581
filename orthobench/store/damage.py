"""Checks for damage of a database.

SQLite notices damage of its pages. It notices neither a changed text or number nor a value of another type. The types
of the columns refuse these (see `orthobench.store.types`), and `problems_of` reads every row.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from shlex import quote
from typing import Any
from urllib.parse import unquote

from sqlalchemy import Connection, Engine, RowMapping, Table, inspect, select, text
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import DamagedError, UsageError
from orthobench.metric import Metric
from orthobench.settings import merged_settings
from orthobench.store.connect import connect
from orthobench.store.keys import check_key
from orthobench.store.result import Status
from orthobench.store.sqlite import SHOWN_PROBLEMS, damaged, primary_code, translated_errors
from orthobench.store.tables import Base, Run

CHECK_SECONDS = 5.0
"""The longest check of a file before it is written to; of a larger file a part is checked."""
UNEXPECTED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, MemoryError),
    RuntimeError,
    SQLAlchemyError,
    sqlite3.Error,
)
"""Errors that a damaged value may raise anywhere."""

_checked: set[tuple[int, int]] = set()  # files that this process has checked, by device and number


@contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """Look for damage of a SQLite file where the block raises an unexpected error.

    Raises:
        DamagedError: the file is damaged.
    """
    try:
        yield
    except UNEXPECTED as error:
        explain(engine, error)
        raise


def explain(engine: Engine, error: BaseException | None) -> None:
    """Look for damage of a SQLite file after an unexpected error.

    Raises:
        DamagedError: the file is damaged.
    """
    if isinstance(error, UNEXPECTED) and (problems := problems_of(engine)):
        raise damaged(_name(engine), *problems) from error


def problems_of(engine: Engine) -> list[str]:
    """Return the faults of a SQLite file, by reading every row; a server checks its own files."""
    if engine.dialect.name != "sqlite":
        return []
    try:
        with engine.connect() as connection:
            damages = connection.execute(text("PRAGMA integrity_check")).scalars().all()
            orphans = connection.execute(text("PRAGMA foreign_key_check")).all()
            return [
                *(str(line) for line in damages if line != "ok"),
                *([f"{len(orphans)} rows refer to a missing run or environment"] if orphans else []),
                *_row_problems(connection),
            ]
    except DamagedError as error:
        return [_problem(error)]


def check_tables(engine: Engine, location: str) -> None:
    """Refuse a database of the newest schema in which a table or a column of a SQLite file is missing.

    Raises:
        DamagedError: something is missing.
    """
    missing = []
    with engine.connect() as connection:
        table_names = set(inspect(connection).get_table_names())
        for table in Base.metadata.sorted_tables:
            if table.name not in table_names:
                missing.append(f"it has no table {table.name}")
            elif engine.dialect.name == "sqlite":
                lost = set(table.columns.keys()) - _stored_columns(connection, table)
                missing += [f"its table {table.name} has no column {name}" for name in sorted(lost)]
    if missing:
        raise damaged(location, *missing)


def _stored_columns(connection: Connection, table: Table) -> set[str]:
    return {row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table.name}")')}


def check_before_writing(file: Path) -> None:
    """Refuse a damaged SQLite file; each file is checked once a process.

    Raises:
        DamagedError: SQLite finds the file damaged.
    """
    if not file.exists():
        return
    status = file.stat()
    if (status.st_dev, status.st_ino) in _checked:
        return
    if problems := _checked_by(file, f"quick_check({SHOWN_PROBLEMS + 1})", seconds=CHECK_SECONDS):
        raise damaged(file, *problems)
    _checked.add((status.st_dev, status.st_ino))


def refuse_triggers(engine: Engine) -> None:
    """Refuse to write to a SQLite file with triggers: orthobench has none, and they would change what it writes.

    Raises:
        UsageError: it has one.
    """
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        name = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalar()
    if name is not None:
        raise UsageError(
            f"{_name(engine)} has a trigger {str(name)[:40]!r} that orthobench did not make, and is not written to: "
            f"copy its runs to a new database with `orthobench db merge {quote(_name(engine))} --db NEW.db`"
        )


def integrity_problems(file: Path, *, immutable: bool = False) -> list[str]:
    """Return what SQLite's whole check finds in a file; `immutable` is that of `connect`."""
    try:
        return _checked_by(file, "integrity_check", immutable=immutable)
    except DamagedError as error:
        return [_problem(error)]


def _checked_by(file: Path, check: str, seconds: float = float("inf"), immutable: bool = False) -> list[str]:
    """Return what a check of SQLite finds in a number of seconds.

    Raises:
        DamagedError: the file is too damaged for the check.
    """
    deadline = time.monotonic() + seconds
    with (
        translated_errors(file, f"database {file} cannot be checked"),
        connect(file, immutable=immutable) as connection,
    ):
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            return [str(line) for (line,) in connection.execute(f"PRAGMA {check}") if line != "ok"]
        except sqlite3.OperationalError as error:
            if primary_code(error) not in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY):
                raise
            return []


def _problem(error: DamagedError) -> str:
    """Return the problem in an error of this package."""
    return str(error).partition(" is damaged: ")[2].removesuffix("; restore a backup") or str(error)


def _row_problems(connection: Connection) -> Iterator[str]:
    """Yield a line for each table with a value that cannot be read."""
    for table in Base.metadata.sorted_tables:
        stored = _stored_columns(connection, table)
        columns = [column for column in table.columns if column.name in stored]
        try:
            for row in connection.execute(select(*columns)).mappings() if columns else ():
                if table is Run.__table__:
                    _read(row)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            yield f"table {table.name}: {error}"


def _read(run: RowMapping) -> None:
    """Read all values of a run that other values depend on.

    Raises:
        ValueError: one cannot be read.
    """
    column: dict[str, Any] = dict(run)
    try:
        check_key(column["key"])
        Status(column["status"])
        merged_settings(column["spec"])
        sum(column["seconds"].values())
        for name in ("task", "model", "task_version", "model_version", "seed"):
            column["spec"][name]
        for name, record in (column.get("metrics") or {}).items():
            Metric.read(name, record)
    except (ValueError, TypeError, LookupError, AttributeError) as error:
        raise ValueError(f"run {column.get('key')}: {type(error).__name__}: {error}") from error


def _name(engine: Engine) -> str:
    """Return the path of an engine's file as the user gave it, or whole for an immutable file."""
    return unquote((engine.url.database or "").removeprefix("file:"))
