"""Connections to SQLite files without SQLAlchemy, which takes a third of a second to load.

SQLite writes new rows to the write-ahead log next to the file, so a copy of the file alone would lack them. SQLite
moves them into the file when the last connection of all processes closes. Here every connection already does so before
it closes, and every run when it ends; this is called folding the log.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

BUSY_TIMEOUT_MS = 60_000
FOLD_TIMEOUT_MS = 250
"""Time to wait for readers before the log is left to them, because each reader folds it when it closes."""


@contextmanager
def connect(
    file: Path, *, mode: Literal["ro", "rw", "rwc"] = "rwc", immutable: bool = False
) -> Iterator[sqlite3.Connection]:
    """Open a connection to a SQLite file until the context ends.

    Args:
        mode: as in SQLite's URIs: "ro" reads, "rw" also writes, "rwc" also creates a missing file.
        immutable: no process writes the file; SQLite then creates no files next to it.
    """
    name = f"{uri_of(file)}?mode={mode}"
    immutable = immutable or is_read_only(file)
    if immutable:
        name += "&immutable=1"
    with closing(sqlite3.connect(name, timeout=BUSY_TIMEOUT_MS / 1000, uri=True)) as connection:
        distrust(connection)
        try:
            yield connection
        finally:
            if not immutable:
                fold(connection, file)


def distrust(connection: sqlite3.Connection) -> None:
    """Refuse functions with side effects in the schema of a file, because the views of a foreign file may call them."""
    connection.execute("PRAGMA trusted_schema = OFF")


def uri_of(file: Path) -> str:
    """Return the URI of a file. It has the same bytes as the name on the disk, whatever the encoding of the locale."""
    return f"file:{quote(os.fsencode(file.absolute()))}"


def is_read_only(file: Path) -> bool:
    """Return whether SQLite must open the file as immutable, because it cannot create its log in the folder."""
    return not os.access(file.parent, os.W_OK) and not log_of(file).exists()


def log_of(file: Path) -> Path:
    """Return the path of a SQLite file's write-ahead log."""
    return file.with_name(f"{file.name}-wal")


def log_size(file: Path) -> int:
    """Return the bytes in a SQLite file's write-ahead log; 0 without one."""
    try:
        return log_of(file).stat().st_size
    except OSError:
        return 0


def fold(connection: sqlite3.Connection, file: Path) -> None:
    """Move the rows of the write-ahead log into the file, so that a copy of the file alone has them.

    Nothing is lost if this fails or another process is busy, because the rows then stay in the log.
    """
    if not log_size(file) or connection.in_transaction:
        return
    with suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout = {FOLD_TIMEOUT_MS}")
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
