"""The database that commands use by default, and the protection of reference results."""

from __future__ import annotations

import sqlite3
from pathlib import Path

from orthobench.errors import UsageError
from orthobench.location import Location, Place
from orthobench.store.connect import connect

DEFAULT = Location("results.db")
OWN = Location("runs.db")
"""The default database if results.db is protected."""
PROTECTED = 0x6F627266
"""The `application_id` of a protected SQLite file; other databases of orthobench have 0."""


def default_database(writes: bool) -> Location:
    """Return the database of a command without `--db`: results.db, or runs.db if results.db is protected.

    As long as there is no runs.db, commands read the protected database, such as the reference results of a clone.

    Args:
        writes: whether the command adds runs.
    """
    if not is_protected(Path(DEFAULT.real)) or (not writes and not Path(OWN.real).exists()):
        return DEFAULT
    return OWN


def named_or_default(db: Place | None, writes: bool) -> Location:
    """Return the named database, or the default one for None; `writes` is as in `default_database`."""
    return default_database(writes) if db is None else Location.of(db)


def is_protected(file: Path) -> bool:
    """Return whether a file is a protected database."""
    if not file.is_file():
        return False
    try:
        with connect(file, mode="ro") as connection:
            return bool(connection.execute("PRAGMA application_id").fetchone()[0] == PROTECTED)
    except sqlite3.Error:
        return False


def protect(file: Path, protected: bool = True) -> None:
    """Protect a database, or end its protection.

    Raises:
        UsageError: the file cannot be changed.
    """
    try:
        with connect(file, mode="rw") as connection:
            connection.execute(f"PRAGMA application_id = {PROTECTED if protected else 0}")
    except sqlite3.Error as error:
        raise UsageError(f"{file} cannot be changed: {error}") from error
