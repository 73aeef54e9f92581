"""The state of a whole SQLite file: its pages, its tables and their columns.

A damaged file is refused, and nothing is written to it. SQLite notices damaged pages, but no changed value, which the
rows' own checks find (`orthobench.store.row_checks`). `orthobench db repair` copies what SQLite can read into a new
file (`orthobench.store.repair`).
"""

from __future__ import annotations

import sqlite3
import time
from pathlib import Path

from sqlalchemy import Connection, Engine, Table, inspect, text

from orthobench.errors import DamagedError
from orthobench.store.sqlite import (
    RESTORE,
    SHOWN_PROBLEMS,
    connect,
    damaged,
    primary_code,
    problem_of,
    translated_errors,
)
from orthobench.store.tables import VERSION_TABLE, Base
from orthobench.system.location import Location

CHECK_SECONDS = 5.0
"""The longest check of a file before it is written to; a larger file is checked only in part."""

_checked: set[tuple[int, int]] = set()  # files that this process has checked, by device and number


def check_tables(engine: Engine, location: Location) -> None:
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
                lost = set(table.columns.keys()) - stored_columns(connection, table)
                missing += [f"its table {table.name} has no column {name}" for name in sorted(lost)]
    if missing:
        raise damaged(location, *missing)


def stored_columns(connection: Connection, table: Table) -> set[str]:
    """Return the names of the columns that a table of a SQLite file has; none if there is no such table."""
    return {row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table.name}")')}


def check_before_writing(file: Path) -> None:
    """Refuse a damaged SQLite file; each process checks a file once.

    Raises:
        DamagedError: SQLite finds the file damaged.
    """
    if not file.exists():
        return
    status = file.stat()
    # By number and not by path, because several paths may lead to the same file.
    if (status.st_dev, status.st_ino) in _checked:
        return
    if problems := _checked_by(file, f"quick_check({SHOWN_PROBLEMS + 1})", seconds=CHECK_SECONDS):
        raise damaged(file, *problems)
    _checked.add((status.st_dev, status.st_ino))


def refuse_views(engine: Engine) -> None:
    """Refuse a SQLite file in which a view or a virtual table has the name of a table: reading it may never end.

    Raises:
        DamagedError: it has one.
    """
    if engine.dialect.name != "sqlite":
        return
    names = [VERSION_TABLE, *Base.metadata.tables]
    # By its text, because that decides what SQLite creates; no table of ours has the word in its definition.
    query = "SELECT name, type FROM sqlite_master WHERE type = 'view' OR sql LIKE '%virtual%'"
    with engine.connect() as connection:
        found = [(str(name), str(kind)) for name, kind in connection.execute(text(query))]
    if problems := [
        f"its {name} is a {'view' if kind == 'view' else 'virtual table'}, not a table"
        for name, kind in found
        if name.lower() in names
    ]:
        raise damaged(Location.of_database(engine.url), *problems, fix=RESTORE)


def integrity_problems(file: Path, *, immutable: bool = False) -> list[str]:
    """Return what SQLite's full check finds in a file; `immutable` is as in `connect`."""
    try:
        return _checked_by(file, "integrity_check", immutable=immutable)
    except DamagedError as error:
        return [problem_of(error)]


def _checked_by(file: Path, check: str, seconds: float = float("inf"), immutable: bool = False) -> list[str]:
    """Return what one of SQLite's checks finds within a number of seconds.

    Raises:
        DamagedError: the file is too damaged for the check.
    """
    deadline = time.monotonic() + seconds
    with (
        translated_errors(file, f"database {file} cannot be checked"),
        connect(file, immutable=immutable) as connection,
    ):
        # Interrupted from here, because SQLite has no time limit for its checks.
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            return [str(line) for (line,) in connection.execute(f"PRAGMA {check}") if line != "ok"]
        except sqlite3.OperationalError as error:
            if primary_code(error) not in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY):
                raise
            return []
