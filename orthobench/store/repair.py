"""Copy what SQLite can read of a damaged file into a new one; the damaged file stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Table

from orthobench.errors import DamagedError, UsageError
from orthobench.store.backup import already_there, check_new
from orthobench.store.open import open_read_only, open_store
from orthobench.store.sqlite import RESTORE, connect, problem_of, translated_errors
from orthobench.store.tables import Base
from orthobench.system.files import name_new
from orthobench.system.location import Location

MOST_SKIPPED = 100_000
"""The most numbers of rows in succession that are tried after a damaged page; the rest of the table is lost."""


@dataclass(frozen=True)
class Repaired:
    """The rows of each table: how many were copied, and how many were not, None if SQLite cannot count them."""

    copied: dict[str, int]
    lost: dict[str, int | None]


def repair(location: Location, copy: Path) -> Repaired:
    """Copy the rows that SQLite can read to a new file, except for those that refer to a row that is lost.

    Raises:
        UsageError: there is no such database, it is on a server or has another schema, or the new file exists.
        DamagedError: SQLite cannot read the schema of the file.
    """
    file, problem, repaired = location.file, f"{location} cannot be repaired", Repaired({}, {})
    if file is None:
        raise UsageError(f"{location} is on a server: `orthobench db info --check` lists its broken rows for SQL")
    check_new(copy)
    with suppress(DamagedError):
        open_read_only(location).close()  # refuses another schema
    try:
        with TemporaryDirectory(dir=copy.parent) as folder:
            part = Path(folder) / copy.name
            open_store(part, create=True).close()
            with translated_errors(copy, problem, file), connect(file, mode="ro") as source, connect(part) as target:
                target.execute("PRAGMA foreign_keys = ON")
                for table in Base.metadata.sorted_tables:
                    repaired.copied[table.name], repaired.lost[table.name] = _copy(table, source, target)
                target.commit()
            name_new(part, copy)
    except DamagedError as error:
        raise DamagedError(f"{problem}: {problem_of(error)}; {RESTORE}") from error
    except FileExistsError as error:
        raise already_there(copy) from error
    return repaired


def _copy(table: Table, source: sqlite3.Connection, target: sqlite3.Connection) -> tuple[int, int | None]:
    """Copy the rows of a table that SQLite can read; return the numbers of `Repaired`."""
    # Neither a view nor a virtual table, because reading a stranger's may never end.
    kind = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE '%virtual%'"
    if not source.execute(kind, (table.name,)).fetchone():
        return 0, 0
    found, copied = source.execute(f"PRAGMA table_info({table.name})"), 0
    names = [name for _, name, *_ in found if name in table.columns]
    insert = f"INSERT INTO {table.name} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    for row in _rows(f"SELECT rowid, {', '.join(names)} FROM {table.name}", source):
        # SQLite refuses a row of a run that is lost, and one that it finds a second time on damaged pages.
        with suppress(sqlite3.IntegrityError):
            copied += target.execute(insert, row).rowcount
    with suppress(sqlite3.Error):
        return copied, source.execute(f"SELECT count(*) FROM {table.name}").fetchone()[0] - copied
    return copied, None


def _rows(query: str, source: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that SQLite can read; behind a damaged page, try one number of a row after another."""
    number = skipped = 0
    while skipped < MOST_SKIPPED:
        try:
            # One at a time, because sqlite3 reads a row ahead: an error would lose the row before the damaged one.
            row = source.execute(f"{query} WHERE rowid >= ? ORDER BY rowid LIMIT 1", (number,)).fetchone()
        except sqlite3.DatabaseError:
            number, skipped = number + 1, skipped + 1
        else:
            if row is None:
                return
            number, skipped = row[0] + 1, 0
            yield row[1:]
