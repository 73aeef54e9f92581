"""Copies of SQLite databases, which are checked before they get their final name."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.store.damage import integrity_problems
from orthobench.store.sqlite import connect, damaged, translated_errors
from orthobench.store.tables import utc_now
from orthobench.system.files import replacing, storage_error, unwritable


def back_up(file: Path, copy: Path, *, locked: bool = False) -> None:
    """Copy one state of a SQLite database, even while other processes write to it, and check the copy.

    Args:
        locked: this process holds a lock, so that only it writes `copy`, which is replaced if it exists.

    Raises:
        UsageError: `copy` exists, and no lock is held.
        DamagedError: the database is damaged.
        StorageError: the copy cannot be written; no partial copy stays.
    """
    try:
        with replacing(copy, locked=locked, new=not locked) as part:
            journal = part.with_name(f"{part.name}-journal")
            try:
                for leftover in (part, journal):  # left by a process that was killed here
                    leftover.unlink(missing_ok=True)
                with (
                    translated_errors(copy, f"database {file} cannot be copied to {copy}", read=file),
                    connect(file) as source,
                    connect(part) as target,
                ):
                    source.isolation_level = None
                    source.execute("BEGIN")  # so that the counts describe the copied state
                    counts = row_counts(source)
                    # Not a copy of the file, because the newest transactions can still be in the log beside it.
                    source.backup(target)
                _check(file, part, copy, counts)
            finally:
                journal.unlink(missing_ok=True)
    except FileExistsError as error:
        raise already_there(copy) from error
    except OSError as error:
        raise storage_error(copy, error) from error


def back_up_alongside(file: Path) -> Path:
    """Copy a SQLite database to a new file next to it, named after the current time; return the copy.

    Raises:
        DamagedError: the database is damaged.
        StorageError: the copy cannot be written; no partial copy stays.
    """
    copy = file.with_name(f"{file.name}.backup-{utc_now():%Y%m%dT%H%M%S%f}")
    back_up(file, copy)
    return copy


def check_new(copy: Path) -> None:
    """Refuse the path of a new file that exists, or whose folder does not.

    Raises:
        UsageError: it exists, or its folder does not.
    """
    if copy.exists():
        raise already_there(copy)
    if not copy.parent.is_dir():
        raise UsageError(f"{copy} cannot be created: there is no folder {copy.parent}")


def already_there(copy: Path) -> UsageError:
    """Return the error for a copy that would overwrite a file."""
    return UsageError(f"{copy} exists already: name a new file")


def row_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return the number of rows of each table."""
    tables = connection.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    names = [str(name) for (name,) in tables]
    quoted = ['"' + name.replace('"', '""') + '"' for name in names]
    return {
        name: int(connection.execute(f"SELECT count(*) FROM {table}").fetchone()[0])
        for name, table in zip(names, quoted, strict=True)
    }


def _check(file: Path, part: Path, copy: Path, counts: dict[str, int]) -> None:
    """Check the copy before it gets its name.

    Raises:
        DamagedError: the copied database is damaged.
        StorageError: the copy differs from the database.
    """
    problems = integrity_problems(part, immutable=True)
    if problems and integrity_problems(file):
        raise damaged(file, *problems)
    if not problems:
        with translated_errors(copy, f"{copy} cannot be checked"), connect(part, immutable=True) as connection:
            problems = [] if row_counts(connection) == counts else ["rows are missing"]
    if problems:
        raise unwritable(copy, f"the copy has faults: {'; '.join(problems[:3])}", "check the disk, or name another")
