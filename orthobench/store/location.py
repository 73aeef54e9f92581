"""Locations of databases: the path of a SQLite file, any SQLAlchemy URL, or the default one.

Reference results are protected, so that a command does not add runs to them. Network
file systems are refused, because SQLite's write-ahead log does not work there.
"""

from __future__ import annotations

import re
import sqlite3
from pathlib import Path

from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from orthobench.errors import UsageError, without_passwords
from orthobench.store.connect import connect


def parse(location: str) -> URL:
    """Return the SQLAlchemy URL of a location.

    Raises:
        UsageError: the location is empty or malformed; the message shows only the scheme of a malformed URL.
    """
    if not location.strip():
        raise UsageError("the database has an empty name: give a file, such as --db results.db, or leave --db out")
    if "://" not in location:
        return URL.create("sqlite", database=location)
    scheme = location.partition("://")[0]
    try:
        url = make_url(location)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError):
        raise UsageError(
            f"'{scheme}://...' is not a database: give a file, or a URL such as postgresql://user@host/name"
        ) from None
    except ValueError:  # the port is not a number; the message may contain a part of the password
        raise UsageError(
            f"the port in '{scheme}://...' is not a number: write postgresql://user@host:5432/name, and :, @ and / in "
            "a password as %3A, %40 and %2F"
        ) from None
    if _has_ambiguous_password(location, url):
        raise UsageError(
            f"the password in '{scheme}://...' has a reserved character: write @ as %40, & as %26, / as %2F and a "
            "space as %20"
        )
    # The default driver depends on SQLAlchemy's version; the extra installs psycopg.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def sqlite_file(location: str) -> Path | None:
    """Return the SQLite file of a location; None for a server or memory."""
    return file_of(parse(location))


def file_of(url: URL) -> Path | None:
    """Return the SQLite file of a URL; None for a server or memory."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


def location_of(url: URL) -> str:
    """Return the location of a URL: the path of its file, or the URL itself with its password."""
    file = file_of(url)
    return url.render_as_string(hide_password=False) if file is None else str(file)


def is_server(location: str) -> bool:
    """Return whether processes of several machines may share this database."""
    return parse(location).get_backend_name() == "postgresql"


def is_same(location: str, other: str) -> bool:
    """Return whether two locations are the same database."""
    file, other_file = sqlite_file(location), sqlite_file(other)
    if file is None or other_file is None:
        return file == other_file and parse(location) == parse(other)
    return file.exists() and other_file.exists() and file.samefile(other_file)


def _has_ambiguous_password(location: str, url: URL) -> bool:
    """Return whether a password has a reserved character, so that a part of it is parsed as another part of the URL."""
    one_word = re.sub(r"\s", "_", location)
    if without_passwords(one_word) == one_word:
        return False
    query = location.partition("?")[2] if url.query else ""
    return bool(
        re.search(r"\s", location)
        or "@" in f"{url.host}{url.database}"
        or any(part and "=" not in part for part in query.split("&"))
    )


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
            "--db postgresql://user@host/name"
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


DEFAULT = "results.db"
OWN = "runs.db"
"""The default database if results.db is protected."""
PROTECTED = 0x6F627266
"""The `application_id` of a protected SQLite file; other databases of orthobench have 0."""


def default_database(writes: bool) -> str:
    """Return the database of a command without `--db`: results.db, or runs.db if results.db is protected.

    As long as there is no runs.db, commands read the protected database, such as the reference results of a clone.

    Args:
        writes: whether the command adds runs.
    """
    if not is_protected(Path(DEFAULT)) or (not writes and not Path(OWN).exists()):
        return DEFAULT
    return OWN


def named_or_default(db: str | Path | None, writes: bool) -> str:
    """Return the named database, or the default one for None; `writes` is as in `default_database`."""
    return default_database(writes) if db is None else str(db)


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
