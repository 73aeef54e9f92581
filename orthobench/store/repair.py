"""Copy what SQLite can read of a damaged file into a new one; the damaged file stays as it is."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from orthobench.errors import DamagedError, UsageError
from orthobench.store.backup import already_there, check_new, row_counts
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
    file = location.file
    if file is None:
        raise UsageError(f"{location} is on a server: `orthobench db info --check` lists its broken rows for SQL")
    check_new(copy)
    with suppress(DamagedError):
        open_read_only(location).close()  # refuses another schema
    problem = f"{location} cannot be repaired"
    try:
        with TemporaryDirectory(dir=copy.parent) as folder:
            part = Path(folder) / copy.name
            open_store(part, create=True).close()
            with translated_errors(copy, problem, file), connect(file, mode="ro") as source, connect(part) as target:
                counts = {table.name: _copy(table.name, source, target) for table in Base.metadata.sorted_tables}
                while orphans := target.execute("PRAGMA foreign_key_check").fetchall():
                    for name, row, *_ in orphans:
                        target.execute(f'DELETE FROM "{name}" WHERE rowid = ?', (row,))
                target.commit()
                copied = row_counts(target)
            name_new(part, copy)
    except DamagedError as error:
        raise DamagedError(f"{problem}: {problem_of(error)}; {RESTORE}") from error
    except FileExistsError as error:
        raise already_there(copy) from error
    lost = {name: None if count is None else count - copied[name] for name, count in counts.items()}
    return Repaired({name: copied[name] for name in counts}, lost)


def _copy(table: str, source: sqlite3.Connection, target: sqlite3.Connection) -> int | None:
    """Copy the rows of a table that SQLite can read; return the number of all, or None if SQLite cannot count them."""
    # Neither a view nor a virtual table, because reading a stranger's may never end.
    kind = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ? AND sql NOT LIKE '%virtual%'"
    if not source.execute(kind, (table,)).fetchone():
        return 0
    own, new = ([row[1] for row in each.execute(f"PRAGMA table_info({table})")] for each in (source, target))
    names = [name for name in own if name in new]
    # OR IGNORE, because SQLite may find a row twice on damaged pages.
    insert = f"INSERT OR IGNORE INTO {table} ({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    target.executemany(insert, _rows(f"SELECT rowid, {', '.join(names)} FROM {table}", source))
    try:
        return int(source.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
    except sqlite3.Error:
        return None


def _rows(query: str, source: sqlite3.Connection) -> Iterator[tuple[Any, ...]]:
    """Yield the rows that SQLite can read; behind a damaged page, try one number of a row after another."""
    last, skipped = -1, 0
    while skipped < MOST_SKIPPED:
        try:
            for number, *values in source.execute(f"{query} WHERE rowid > ? ORDER BY rowid", (last,)):
                last, skipped = number, 0
                yield tuple(values)
            return
        except sqlite3.DatabaseError:
            last, skipped = last + 1, skipped + 1
            # By itself, because sqlite3 reads a row ahead: an error loses the row before the damaged one.
            with suppress(sqlite3.DatabaseError):
                for _, *values in source.execute(f"{query} WHERE rowid = ?", (last,)):
                    skipped = 0
                    yield tuple(values)
