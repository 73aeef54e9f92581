"""Connections to SQLite files without SQLAlchemy, which takes a third of a second to load."""

from __future__ import annotations

import os
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Literal
from urllib.parse import quote

BUSY_TIMEOUT_MS = 60_000


def connect(
    file: Path, *, mode: Literal["ro", "rw", "rwc"] = "rwc", immutable: bool = False
) -> closing[sqlite3.Connection]:
    """Return a connection to a SQLite file.

    Args:
        mode: as in SQLite's URIs: "ro" reads, "rw" also writes, "rwc" also creates a missing file.
        immutable: no process writes the file; SQLite then makes no files beside it.
    """
    name = f"{uri_of(file)}?mode={mode}"
    if immutable or is_read_only(file):
        name += "&immutable=1"
    connection = sqlite3.connect(name, timeout=BUSY_TIMEOUT_MS / 1000, uri=True)
    distrust(connection)
    return closing(connection)


def distrust(connection: sqlite3.Connection) -> None:
    """Refuse functions with side effects in the schema of a file: views from elsewhere may call them."""
    connection.execute("PRAGMA trusted_schema = OFF")


def uri_of(file: Path) -> str:
    """Return the URI of a file. Its bytes are those of the name on the disk, whatever the encoding of the locale."""
    return f"file:{quote(os.fsencode(file.absolute()))}"


def is_read_only(file: Path) -> bool:
    """Return whether SQLite must open the file as immutable, because it cannot create its log in the folder."""
    return not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()
