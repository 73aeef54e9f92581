"""SQLite files: connections, transactions, and the errors of SQLite in this package's words."""

from __future__ import annotations

import logging
import re
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, ExceptionContext, event
from sqlalchemy.exc import OperationalError

from orthobench.errors import DamagedError, OrthobenchError, UsageError, shell_command
from orthobench.files.atomic import (
    DELETE_FILES,
    MAKE_ROOM,
    MAKE_WRITABLE,
    NO_INODES,
    has_no_inodes,
    is_full,
    unwritable,
)
from orthobench.store.connect import BUSY_TIMEOUT_MS, distrust, fold

PRIMARY_CODE = 0xFF  # SQLite's extended error codes add details in the higher bits
DAMAGE_CODES = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_READ,
}
DAMAGE_WORDS = re.compile(
    r"no such (table|column|index|function|module|collation)|has no column|already exists|duplicate column"
    r"|could not decode|malformed|unsupported file format|unknown encoding",
    re.IGNORECASE,
)
"""Messages without their own error code, which show that the tables differ from this package's."""
SHOWN_PROBLEMS = 3
RESTORE = "restore a backup"

logger = logging.getLogger(__name__)


def prepare(engine: Engine, file: Path | None) -> None:
    """Begin all transactions here, because Python's driver begins none before a read or a table's creation.

    A writing transaction begins as a writer. A reader that later becomes a writer would fail at once, despite the
    timeout, while another process writes.
    """

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA foreign_keys = ON")
        distrust(connection)
        # A commit survives a loss of power: a run's checkpoints are removed after its last commit.
        connection.execute("PRAGMA synchronous = FULL")
        if engine.get_execution_options().get("reads_only"):
            connection.execute("PRAGMA query_only = ON")

    @event.listens_for(engine, "close")
    def fold_log(connection: sqlite3.Connection, _: Any) -> None:
        if file is not None:
            fold(connection, file)

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
            except OperationalError as error:
                if primary_code(error.orig) != sqlite3.SQLITE_BUSY:
                    raise
                logger.warning("database %s is locked by other processes: waiting for them", file)
            else:
                return

    @event.listens_for(engine, "handle_error")
    def translate(context: ExceptionContext) -> None:
        if file is not None and (error := translated(file, context.original_exception)):
            raise error from context.original_exception


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's primary code for an error, or 0 for an error that is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE


def damaged(location: object, *problems: str, fix: str = RESTORE) -> DamagedError:
    """Return the error for a damaged database; its line has the first problems and the fix."""
    return DamagedError(f"{location} is damaged: {summary(problems)}; {fix}")


def repair_of(location: object) -> str:
    """Return the fix for a database with broken rows."""
    return f"`{shell_command('db', 'repair', '--db', location)}` mends or removes them"


def summary(problems: Sequence[str]) -> str:
    """Return the first problems as one line."""
    words = [" ".join(problem.split())[:200] for problem in problems[:SHOWN_PROBLEMS]]
    if len(problems) > SHOWN_PROBLEMS:
        words.append(f"{len(problems) - SHOWN_PROBLEMS} more")
    return "; ".join(words)


def translated(file: Path, error: BaseException, read: Path | None = None) -> OrthobenchError | None:
    """Translate SQLite's error into this package's, if a file is damaged, is not a database or cannot be written.

    Args:
        file: the file that is written.
        read: the file that is read, if it is a different one.
    """
    code, read = getattr(error, "sqlite_errorcode", 0), read or file
    if isinstance(error, UnicodeDecodeError) or {code, code & PRIMARY_CODE} & DAMAGE_CODES:
        return damaged(read, str(error))
    match code & PRIMARY_CODE:
        case sqlite3.SQLITE_NOTADB:
            return DamagedError(
                f"{read} is not a database, or its first bytes are damaged: name another with `db`, or restore a backup"
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if has_no_inodes(file.parent):
            return unwritable(f"database {file}", NO_INODES, DELETE_FILES)
        case sqlite3.SQLITE_FULL:
            return unwritable(f"database {file}", "the disk is full", MAKE_ROOM)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if is_full(file.parent):
            return unwritable(f"database {file}", "the disk is full", MAKE_ROOM)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return unwritable(f"database {file}", str(error), MAKE_WRITABLE)
    if isinstance(error, sqlite3.Error) and DAMAGE_WORDS.search(str(error)):
        return damaged(read, str(error))
    return None


@contextmanager
def translated_errors(written: Path, otherwise: str, read: Path | None = None) -> Iterator[None]:
    """Translate SQLite's errors into this package's, with the arguments of `translated`.

    Raises:
        StorageError: the file cannot be written; DamagedError if it is damaged.
        UsageError: any other error of SQLite.
    """
    try:
        yield
    except (sqlite3.Error, UnicodeDecodeError) as error:
        raise translated(written, error, read) or UsageError(f"{otherwise}: {error}") from error
