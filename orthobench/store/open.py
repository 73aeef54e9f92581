"""Opening, creating and upgrading a database at a file's path or any SQLAlchemy URL.

An upgrade is one transaction, after a copy of the old file: an interrupted upgrade changes nothing.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Connection, Engine, ExceptionContext, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, OperationalError, SQLAlchemyError

from orthobench.errors import OrthobenchError, UsageError
from orthobench.store.atomic import MAKE_ROOM, MAKE_WRITABLE, is_full, replacing, storage_error, unwritable
from orthobench.store.network import refuse_network
from orthobench.store.server import DRIVER_ARGUMENTS, Server
from orthobench.store.store import Store

VERSION_TABLE = "orthobench_version"
HEAD = max(file.stem[1:5] for file in Path(__file__).with_name("migrations").joinpath("versions").glob("v*.py"))
"""The newest revision: migrations are named v0001_first.py and so on."""
BUSY_TIMEOUT_MS = 60_000
PRIMARY_CODE = 0xFF  # SQLite's extended error codes add details in the higher bits

logger = logging.getLogger(__name__)


class DatabaseNotFoundError(UsageError):
    """The location has no database, or a database without the tables of orthobench."""


def open_store(location: str, *, create: bool = False) -> Store:
    """Open the database at a path or URL.

    An older schema is upgraded; a SQLite file is copied before the upgrade.

    Args:
        location: "results.db", or a URL such as "postgresql://host/name".
        create: whether to create a missing database.

    Raises:
        UsageError: the database is missing, cannot be opened, has no runs of orthobench, or has a newer schema.
    """
    engine = make_engine(location, create=create)
    location = location if sqlite_file(location) else str(engine.url)  # without the password
    try:
        version = schema(engine)
        if version is None and not create:
            raise DatabaseNotFoundError(f"{location} holds no orthobench runs: name another database with --db")
        if version is None or version < HEAD:
            upgrade(engine, sqlite_file(location))
        elif version > HEAD:
            raise UsageError(
                f"{location} was written by a newer orthobench (schema {version}, this one knows {HEAD}): "
                "run `pip install -U orthobench`"
            )
    except SQLAlchemyError as error:
        engine.dispose()
        raise UsageError(f"database {location} cannot be opened: {reason(error)}") from error
    except OrthobenchError:
        engine.dispose()
        raise
    return Store(engine)


def make_engine(location: str, *, create: bool = False) -> Engine:
    """Return an engine for the database at a path or URL, of any schema.

    Raises:
        UsageError: the database is missing (unless `create`), is no database, or its driver is not installed.
    """
    url = _url(location)
    file = _file(url)
    if file is not None:
        _check_file(file, create)
        if not create and _is_read_only(file):
            url = url.set(database=f"file:{quote(str(file.absolute()))}", query={"uri": "true", "immutable": "1"})
    server = url.get_backend_name() == "postgresql"
    try:
        # A connection that died in the pool is replaced before it is used.
        engine = create_engine(url, pool_pre_ping=True, connect_args=DRIVER_ARGUMENTS) if server else create_engine(url)
    except ImportError as error:
        needed = "'orthobench[postgresql]'" if server else error.name
        raise UsageError(f"database {url} needs a driver that is not installed: pip install {needed}") from error
    if url.get_backend_name() == "sqlite":
        _prepare_sqlite(engine, file)
    return engine


def sqlite_file(location: str) -> Path | None:
    """Return the SQLite file of a location; None for a server or memory."""
    return _file(_url(location))


def is_server(location: str) -> bool:
    """Return whether processes of several machines may share this database."""
    return _url(location).get_backend_name() == "postgresql"


def is_same(location: str, other: str) -> bool:
    """Return whether two locations are the same database."""
    file, other_file = sqlite_file(location), sqlite_file(other)
    if file is None or other_file is None:
        return file == other_file and _url(location) == _url(other)
    return file.exists() and other_file.exists() and file.samefile(other_file)


def check_writable(location: str) -> None:
    """Refuse a location that is not writable, before any training.

    Raises:
        UsageError: the folder does not exist or is not writable, or the path is a folder.
    """
    file = sqlite_file(location)
    if file is None:
        return
    _check_file(file, create=True)
    if not os.access(file if file.exists() else file.parent, os.W_OK) or not os.access(file.parent, os.W_OK):
        raise UsageError(f"database {file} cannot be written: name one elsewhere with --db")


def _url(location: str) -> URL:
    if not location.strip():
        raise UsageError("the database has an empty name: give a file, such as --db results.db, or leave --db out")
    if "://" not in location:
        return URL.create("sqlite", database=location)
    try:
        url = make_url(location)
        url.get_dialect()
    except (ArgumentError, NoSuchModuleError) as error:
        raise UsageError(
            f"'{location.split('://')[0]}://...' is not a database: "
            "give a file, or a URL such as postgresql://user@host/name"
        ) from error
    # The default driver depends on SQLAlchemy's version; the extra installs psycopg.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _file(url: URL) -> Path | None:
    """Return the SQLite file of a URL; None for a server or memory."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


def _check_file(file: Path, create: bool) -> None:
    refuse_network(file)
    if file.is_dir():
        raise UsageError(f"database {file} is a folder: give a file, such as {file / 'results.db'}")
    if not file.exists():
        if not create:
            raise DatabaseNotFoundError(
                f"there is no database {file}: create it with `orthobench run adding scornn --preset quick`, or "
                "name another with --db"
            )
        if not file.parent.is_dir():
            raise UsageError(f"database {file} cannot be created: there is no folder {file.parent}")
        return
    # Only SQLite may open the file: closing it here would free all locks of this process on it. Then another process
    # could remove the log of an open connection, and all later writes to it.
    if not os.access(file, os.R_OK):
        raise UsageError(f"database {file} cannot be read: make it readable, or name another with --db")


def _is_read_only(file: Path) -> bool:
    """Return whether SQLite must open the file as immutable, because it cannot create its log in the folder."""
    return not os.access(file.parent, os.W_OK) and not file.with_name(f"{file.name}-wal").exists()


def _prepare_sqlite(engine: Engine, file: Path | None) -> None:
    """Begin all transactions here: Python's driver begins none before a read or a table's creation.

    A writing transaction begins as a writer. A reader that becomes a writer would fail at once while another process
    writes, despite the timeout.
    """

    @event.listens_for(engine, "connect")
    def connect(connection: sqlite3.Connection, _: Any) -> None:
        connection.isolation_level = None
        connection.execute(f"PRAGMA busy_timeout = {BUSY_TIMEOUT_MS}")
        connection.execute("PRAGMA foreign_keys = ON")
        connection.execute("PRAGMA synchronous = NORMAL")

    @event.listens_for(engine, "begin")
    def begin(connection: Connection) -> None:
        writes = connection.get_execution_options().get("writes", False)
        while True:
            try:
                connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")
            except OperationalError as error:
                if _code(error.orig) != sqlite3.SQLITE_BUSY:
                    raise
                logger.warning("database %s is locked by other processes: waiting for them", file)
            else:
                return

    @event.listens_for(engine, "handle_error")
    def translate(context: ExceptionContext) -> None:
        if file is not None and (error := _translated(file, context.original_exception)):
            raise error from context.original_exception


def _code(error: BaseException | None) -> int:
    return getattr(error, "sqlite_errorcode", 0) & PRIMARY_CODE


def _translated(file: Path, error: BaseException) -> OrthobenchError | None:
    """Return this package's error for SQLite's, if the file cannot be written or is no database."""
    full = unwritable(f"database {file}", "the disk is full", MAKE_ROOM)
    match _code(error):
        case sqlite3.SQLITE_NOTADB:
            return UsageError(f"{file} is not a database: name another with --db")
        case sqlite3.SQLITE_FULL:
            return full
        case sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN if is_full(file.parent):
            return full
        case sqlite3.SQLITE_READONLY | sqlite3.SQLITE_IOERR | sqlite3.SQLITE_CANTOPEN:
            return unwritable(f"database {file}", str(error), MAKE_WRITABLE)
    return None


def schema(engine: Engine) -> str | None:
    """Return the schema's revision; None for a database without the tables of orthobench."""
    with engine.connect() as connection:
        return _version(connection)


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if version is None else str(version)


def backup_of(file: Path, version: str) -> Path:
    """Return the path of the copy that precedes the upgrade of an older schema."""
    return file.with_name(f"{file.name}.backup-{version}")


def upgrade(engine: Engine, file: Path | None) -> None:
    """Upgrade the schema in one transaction; concurrent processes take turns.

    A SQLite file is copied before; a server's database is not.

    Raises:
        StorageError: the disk has no room for the copy or the new tables.
    """
    with _upgrade_lock(engine, file):
        if file is not None:
            with _translated_errors(file, f"database {file} cannot be used"), _connect(file) as plain:
                plain.execute("PRAGMA journal_mode = WAL")
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            version = _version(connection)
            if version == HEAD:
                return
            if file is not None and version is not None:
                back_up(file, backup_of(file, version))  # no other process writes during this transaction
            _migrate(connection)


def _upgrade_lock(engine: Engine, file: Path | None) -> AbstractContextManager[object]:
    from filelock import FileLock

    if file is None:
        return Server(engine).migration_lock() if engine.dialect.name == "postgresql" else nullcontext()
    lock = FileLock(file.with_name(f".{file.name}.lock"))
    try:
        return lock.acquire()
    except OSError as error:
        raise storage_error(f"database {file}", error) from error


def back_up(file: Path, copy: Path) -> None:
    """Copy a SQLite database at one moment, despite concurrent writes.

    Raises:
        StorageError: the copy cannot be written; no partial copy stays.
    """
    try:
        with replacing(copy, locked=True) as part:
            journal = part.with_name(f"{part.name}-journal")
            try:
                for leftover in (part, journal):  # of a process that was killed here
                    leftover.unlink(missing_ok=True)
                with (
                    _translated_errors(copy, f"database {file} cannot be copied to {copy}"),
                    _connect(file) as source,
                    _connect(part) as target,
                ):
                    source.backup(target)
            finally:
                journal.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(copy, error) from error


def _connect(file: Path) -> closing[sqlite3.Connection]:
    """Return a connection without SQLAlchemy."""
    name = f"file:{quote(str(file.absolute()))}" + ("?immutable=1" if _is_read_only(file) else "")
    return closing(sqlite3.connect(name, timeout=BUSY_TIMEOUT_MS / 1000, uri=True))


@contextmanager
def _translated_errors(written: Path, otherwise: str) -> Iterator[None]:
    """Translate SQLite's errors into those of this package.

    Raises:
        StorageError: the file cannot be written.
        UsageError: any other error of SQLite.
    """
    try:
        yield
    except sqlite3.Error as error:
        raise _translated(written, error) or UsageError(f"{otherwise}: {error}") from error


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


def reason(error: SQLAlchemyError) -> str:
    """Return the first line of the driver's message."""
    cause = error.orig if isinstance(error, DatabaseError) and error.orig else error
    return str(cause).splitlines()[0]
