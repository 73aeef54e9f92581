"""SQLite files without SQLAlchemy, which takes a third of a second to load: connections, and the default database.

SQLite writes new rows to the write-ahead log next to the file, so a copy of the file alone would lack them. SQLite
moves them into the file when the last connection of all processes closes. Here every connection already does so before
it closes, and every run when it ends; this is called folding the log.

Reference results are protected, so that a command does not add runs to them. Network file systems are refused, because
the write-ahead log does not work there.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from orthobench.errors import UsageError
from orthobench.location import Location, Place

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
