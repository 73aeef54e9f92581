"""Copy what can be read of a damaged SQLite file into a new one; the damaged file stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Table
from sqlalchemy.engine import Dialect

from orthobench.errors import DamagedError, UsageError
from orthobench.store.backup import already_there, check_new, row_counts
from orthobench.store.damage import Fault, contradictions, refuse_views, row_problem, text_or_bytes
from orthobench.store.open import (
    HEAD,
    newer_schema,
    open_engine,
    open_store,
    reach_database,
    schema_revision,
    upgrade,
    without_runs,
)
from orthobench.store.sqlite import RESTORE, connect, problem_of
from orthobench.store.tables import Base
from orthobench.system.files import name_new
from orthobench.system.location import Location

MOST_UNREADABLE = 100_000
"""The most rows in succession on damaged pages that are skipped; after them, the rest of the table is lost."""


@dataclass(frozen=True)
class Repaired:
    """The result of a repair.

    Attributes:
        copied: the number of rows that were copied, by table.
        lost: the number of rows that were not, by table; None if SQLite cannot count them.
        faults: the rows that SQLite can read, and this program cannot; rows that belong to them are lost, too.
    """

    copied: dict[str, int]
    lost: dict[str, int | None]
    faults: list[Fault]


def repair(location: Location, copy: Path) -> Repaired:
    """Copy the rows that can be read to a new SQLite file: each whose run and environment can be read as well.

    Raises:
        UsageError: there is no such database, it is on a server, or the new file exists.
        DamagedError: SQLite cannot read the schema of the file.
    """
    file = location.file
    if file is None:
        raise UsageError(f"{location} is on a server: `orthobench db info --check` lists its broken rows for SQL")
    check_new(copy)
    revision, totals, faults = _revision(location), {}, list[Fault]()
    with TemporaryDirectory(dir=copy.parent) as folder:
        part = Path(folder) / copy.name
        engine = open_engine(Location(str(part)), create=True)
        upgrade(engine, part, revision)
        engine.dispose()
        with connect(file, mode="ro") as source, connect(part) as target:
            source.text_factory = text_or_bytes
            target.execute("PRAGMA foreign_keys = ON")
            for table in Base.metadata.sorted_tables:
                totals[table.name] = _copy_table(table, source, target, engine.dialect, faults)
            target.commit()
        with open_store(part) as store:
            with store.engine.connect() as connection:
                contradicted = list(contradictions(connection))
            for fault in contradicted:
                store.delete(fault.row)
        with connect(part) as target:
            copied = row_counts(target)
        try:
            name_new(part, copy)
        except FileExistsError as error:
            raise already_there(copy) from error
    lost = {name: None if total is None else total - copied[name] for name, total in totals.items()}
    return Repaired({name: copied[name] for name in totals}, lost, [*faults, *contradicted])


def _revision(location: Location) -> str:
    """Return the schema of a file; the newest one if the file does not name it.

    Raises:
        UsageError: the file has no runs of orthobench, or a newer schema.
        DamagedError: SQLite cannot read the schema of the file.
    """
    engine = open_engine(location)
    try:
        reach_database(engine, location, lambda: refuse_views(engine))
        try:
            version = reach_database(engine, location, lambda: schema_revision(engine, location))
        except DamagedError:
            return HEAD
    except DamagedError as error:
        raise DamagedError(f"{location} cannot be repaired: {problem_of(error)}; {RESTORE}") from error
    finally:
        engine.dispose()
    if version is None:
        raise without_runs(location)
    if version > HEAD:
        raise newer_schema(location, version)
    return version


def _copy_table(
    table: Table, source: sqlite3.Connection, target: sqlite3.Connection, dialect: Dialect, faults: list[Fault]
) -> int | None:
    """Copy the rows of a table that can be read, and append the others to `faults`; return the number of both.

    A row that refers to one that was not copied is refused by the new file. The number is None if SQLite cannot count.
    """
    stored = [
        {row[1] for row in connection.execute(f'PRAGMA table_info("{table.name}")')} for connection in (source, target)
    ]
    names = [column.name for column in table.columns if column.name in stored[0] & stored[1]]
    if not names:
        return 0
    problem, columns = row_problem(table, names, dialect), ", ".join(f'"{name}"' for name in names)
    # OR IGNORE, because SQLite may find a row twice on damaged pages.
    insert = f'INSERT OR IGNORE INTO "{table.name}" ({columns}) VALUES ({", ".join("?" * len(names))})'
    for number, *values in _rows(table.name, columns, source):
        if reason := problem(values):
            faults.append(Fault(table.name, number, f"row {number} of table {table.name}", reason))
            continue
        try:
            target.execute(insert, values)
        except sqlite3.IntegrityError:  # its run, series or environment was not copied
            continue
    try:
        return int(source.execute(f'SELECT count(*) FROM "{table.name}"').fetchone()[0])
    except sqlite3.Error:
        return None


def _rows(table: str, columns: str, source: sqlite3.Connection) -> Iterator[Sequence[Any]]:
    """Yield the rows of a table that SQLite can read, each after its number."""
    last, skipped = -1, 0
    while skipped < MOST_UNREADABLE:
        try:
            query = f'SELECT rowid, {columns} FROM "{table}" WHERE rowid > ? ORDER BY rowid'
            for row in source.execute(query, (last,)):
                last, skipped = max(last, row[0]), 0
                yield row
            return
        except sqlite3.DatabaseError:  # the next row is on a damaged page
            last, skipped = last + 1, skipped + 1
