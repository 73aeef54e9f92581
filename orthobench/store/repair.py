"""Copy what can be read of a damaged SQLite file into a new one; the damaged file stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Engine

from orthobench.errors import DamagedError, UsageError
from orthobench.store.backup import already_there, check_new, row_counts
from orthobench.store.damage import Fault, faults_in, refuse_views, text_or_bytes
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
    revision, found = _revision(location), dict[str, int | None]()
    with TemporaryDirectory(dir=copy.parent) as folder:
        part = Path(folder) / copy.name
        engine = open_engine(Location(str(part)), create=True)
        upgrade(engine, part, revision)
        with connect(file, mode="ro") as source, connect(part) as target:
            source.text_factory = text_or_bytes
            for table in Base.metadata.sorted_tables:
                found[table.name] = _copy_table(table.name, source, target)
            target.commit()
            faults = _delete_faults(engine, target)
            engine.dispose()
        with open_store(part), connect(part) as target:  # opened as a store, because that brings it to today's schema
            copied = row_counts(target)
        try:
            name_new(part, copy)
        except FileExistsError as error:
            raise already_there(copy) from error
    lost = {name: None if count is None else count - copied[name] for name, count in found.items()}
    return Repaired({name: copied[name] for name in found}, lost, faults)


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


def _copy_table(table: str, source: sqlite3.Connection, target: sqlite3.Connection) -> int | None:
    """Copy the rows of a table that SQLite can read; return the number of all, or None if SQLite cannot count them."""
    stored = [
        [row[1] for row in connection.execute(f'PRAGMA table_info("{table}")')] for connection in (source, target)
    ]
    columns = ", ".join(f'"{name}"' for name in stored[0] if name in stored[1])
    if not columns:
        return 0
    # OR IGNORE, because SQLite may find a row twice on damaged pages.
    insert = f'INSERT OR IGNORE INTO "{table}" (rowid, {columns}) VALUES (?{", ?" * columns.count(",")}, ?)'
    target.executemany(insert, _rows(table, columns, source))
    try:
        return int(source.execute(f'SELECT count(*) FROM "{table}"').fetchone()[0])
    except sqlite3.Error:
        return None


def _delete_faults(engine: Engine, target: sqlite3.Connection) -> list[Fault]:
    """Delete the rows that this program cannot read and those that refer to a missing row; return the former."""
    faults: list[Fault] = []
    while True:
        while orphans := target.execute("PRAGMA foreign_key_check").fetchall():
            _delete(target, [(table, row) for table, row, _, _ in orphans])
        with engine.connect() as connection:
            found = list(faults_in(connection))  # runs that contradict their curves come after all others are gone
        if not found:
            return faults
        _delete(target, [(fault.table, fault.row) for fault in found])
        faults += found


def _delete(target: sqlite3.Connection, rows: Iterable[tuple[str, int]]) -> None:
    for table, row in rows:
        target.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
    target.commit()


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
