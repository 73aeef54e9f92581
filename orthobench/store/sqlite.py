"""SQLite files: connections, the default database, and the errors of SQLite in this package's words.

SQLAlchemy takes a third of a second to load, so a process can connect without it.

SQLite writes new rows to the write-ahead log next to the file, so a copy of the file alone would lack them. SQLite
moves them into the file when the last connection of all processes closes. Here every connection already does so before
it closes, and every run when it ends; this is called folding the log.

Reference results are protected, so that a command does not add runs to them. Network file systems are refused, because
the write-ahead log does not work there.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from orthobench.errors import DamagedError, OrthobenchError, UsageError, first_line, shell_command
from orthobench.system.files import (
    DELETE_FILES,
    MAKE_ROOM,
    MAKE_WRITABLE,
    NO_INODES,
    has_no_inodes,
    is_full,
    unwritable,
)
from orthobench.system.location import DATABASE_VARIABLE, DEFAULT_DATABASE, Location, Place, variable

if TYPE_CHECKING:
    from sqlalchemy import Connection, Engine, ExceptionContext

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
    # Not within a transaction, because SQLite refuses a checkpoint there.
    if not log_size(file) or connection.in_transaction:
        return
    with suppress(sqlite3.Error):
        connection.execute(f"PRAGMA busy_timeout = {FOLD_TIMEOUT_MS}")
        try:
            # TRUNCATE, because other modes leave the log at its size, and `log_size`
            # could not tell that its rows have moved.
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
        finally:
            connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")


NETWORK = {
    *("afs", "beegfs", "ceph", "cifs", "coda", "gfs2", "glusterfs", "gpfs", "lustre", "ncpfs", "nfs", "nfs4", "ocfs2"),
    *("orangefs", "panfs", "pvfs2", "smb3", "smbfs", "wekafs"),
    *(f"fuse.{name}" for name in ("beegfs", "ceph", "ceph-fuse", "curlftpfs", "davfs", "gcsfuse", "glusterfs")),
    *(f"fuse.{name}" for name in ("juicefs", "mfs", "moosefs", "rclone", "s3fs", "sshfs")),
}
"""Types of file systems that several machines share, as Linux names them."""


def refuse_network(file: Path) -> None:
    """Refuse a SQLite file that other machines may open.

    Raises:
        UsageError: the file or its folder is on a network file system.
    """
    kind = file_system(file)
    if kind in NETWORK:
        raise UsageError(
            f"database {file} is on a network file system ({kind}), where processes of several machines do not see "
            "each other's writes and SQLite loses data: put it on a local disk, or name a server with "
            "`db='postgresql://user@host/name'`"
        )


def file_system(file: Path) -> str | None:
    """Return the type of a path's file system, or None if the operating system does not list its mounts."""
    import psutil

    try:
        mounts = psutil.disk_partitions(all=True)
    except OSError:
        return None
    path = file.resolve()
    covering = [mount for mount in mounts if path.is_relative_to(mount.mountpoint)]
    # The innermost mount counts; if two have the same mount point, the later one hides the earlier one.
    innermost = max(reversed(covering), key=lambda mount: len(Path(mount.mountpoint).parts), default=None)
    return None if innermost is None else innermost.fstype


OWN = Location("runs.db")
"""The default database if results.db is protected."""
PROTECTED = 0x6F627266
"""The `application_id` of a protected SQLite file; other databases of orthobench have 0."""


def default_database(writes: bool) -> Location:
    """Return the database of a command without `--db`.

    It is $ORTHOBENCH_DB, else results.db, or runs.db if results.db is protected. As long as there is no runs.db,
    commands read the protected database, such as the reference results of a clone.

    Args:
        writes: whether the command adds runs.
    """
    if named := variable(DATABASE_VARIABLE):
        return Location.of(named)
    if not is_protected(Path(DEFAULT_DATABASE.real)) or (not writes and not Path(OWN.real).exists()):
        return DEFAULT_DATABASE
    return OWN


def named_or_default(db: Place | None, writes: bool) -> Location:
    """Return the named database, or the default one for None; `writes` is as in `default_database`."""
    return default_database(writes) if db is None else Location.of(db)


def database_words(db: Location, writes: bool) -> tuple[str, ...]:
    """Return the words that name a database in a command; none if the command uses it anyway."""
    return () if db == default_database(writes) else ("--db", str(db))


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


PRIMARY_CODE = 0xFF  # SQLite's extended error codes add details in the higher bits
DAMAGE_CODES = {
    sqlite3.SQLITE_CORRUPT,
    sqlite3.SQLITE_FORMAT,
    sqlite3.SQLITE_IOERR_SHORT_READ,
    sqlite3.SQLITE_IOERR_READ,
}
SHOWN_PROBLEMS = 3
RESTORE = "restore a backup"
CORRECT = f"correct or delete the row in SQL, or {RESTORE}"

_logger = logging.getLogger(__name__)


def prepare(engine: Engine, file: Path | None) -> None:
    """Begin all transactions here, because Python's driver begins none before a read or a table's creation.

    A writing transaction begins as a writer. A reader that later becomes a writer would fail at once, despite the
    timeout, while another process writes.
    """
    from sqlalchemy import event
    from sqlalchemy.exc import OperationalError

    @event.listens_for(engine, "connect")
    def configure(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        # Told each connection, because SQLite checks no foreign keys by default.
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
                # No limit, because a run of days should not fail as another process holds
                # the database for longer than the timeout.
                _logger.warning("database %s is locked by other processes: waiting for them", file)
            else:
                return

    @event.listens_for(engine, "handle_error")
    def translate(context: ExceptionContext) -> None:
        if file is not None and (error := translated(file, context.original_exception)):
            raise error from context.original_exception


def primary_code(error: BaseException | None) -> int:
    """Return SQLite's primary code for an error, or 0 for an error that is not SQLite's."""
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE


def damaged(location: Location | Path, *problems: str, fix: str = "") -> DamagedError:
    """Return the error for a damaged database; its line has the first problems and the fix.

    Args:
        fix: what the user can do; by default a repair, which a server's database does not need.
    """
    words = shell_command("db", "repair", "repaired.db", "--db", location)
    is_server = Location.of(location).file is None
    fix = fix or (CORRECT if is_server else f"`{words}` copies what can be read, or {RESTORE}")
    error = DamagedError(f"{location} is damaged: {summary(problems)}; {fix}")
    error.problem = summary(problems)
    return error


def is_damage(error: BaseException) -> bool:
    """Return whether an error shows that SQLite cannot read its file, or that a text is not UTF-8."""
    code = getattr(error, "sqlite_errorcode", 0)
    # Python's driver gives its error for a text no code.
    is_text = isinstance(error, UnicodeDecodeError) or "could not decode" in str(error).lower()
    return is_text or bool({code, code & PRIMARY_CODE} & DAMAGE_CODES)


def problem_of(error: Exception) -> str:
    """Return the problem in an error of `damaged`, without the fix, or the first line of another error."""
    return getattr(error, "problem", "") or first_line(error)


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
    read = read or file
    if is_damage(error):
        return damaged(read, str(error))
    match primary_code(error):
        case sqlite3.SQLITE_NOTADB:
            return DamagedError(
                f"{read} is not a database, or its first bytes are damaged: name another, or restore a backup"
            )
        case sqlite3.SQLITE_FULL | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if has_no_inodes(file.parent):
            return unwritable(f"database {file}", NO_INODES, DELETE_FILES)
        case sqlite3.SQLITE_FULL:
            return unwritable(f"database {file}", "the disk is full", MAKE_ROOM)
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if is_full(file.parent):
            return unwritable(f"database {file}", "the disk is full", MAKE_ROOM)
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return unwritable(f"database {file}", str(error), MAKE_WRITABLE)
        case sqlite3.SQLITE_ERROR:  # the statements are this package's, so the file's tables differ
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
