"""Opening a database: a file's path or any SQLAlchemy URL, created or upgraded where that is asked for."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, nullcontext
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event, inspect, text
from sqlalchemy.engine import URL, make_url
from sqlalchemy.exc import ArgumentError, DatabaseError, NoSuchModuleError, SQLAlchemyError

from orthobench.errors import UsageError
from orthobench.store.network import refuse_network
from orthobench.store.server import DRIVER_ARGUMENTS
from orthobench.store.store import Store

VERSION_TABLE = "orthobench_version"
HEAD = "0002"
BUSY_TIMEOUT_MS = 60_000


def open_store(location: str, *, create: bool = False) -> Store:
    """Open the database at a path or URL.

    An older schema is upgraded, after a copy of a SQLite file was put beside it.

    Args:
        location: "results.db", or a URL such as "postgresql://host/name".
        create: make a database that is not there yet.

    Raises:
        UsageError: there is none, it cannot be opened, is not ours, or was written by a newer orthobench.
    """
    url = _url(location)
    file = _file(url)
    if file is not None:
        _check_file(file, create)
    location = url.render_as_string() if "://" in location else location  # without the password
    server = url.get_backend_name() == "postgresql"
    try:
        # A connection that died in the pool is replaced before it is used.
        engine = create_engine(url, pool_pre_ping=True, connect_args=DRIVER_ARGUMENTS) if server else create_engine(url)
    except ImportError as error:
        needed = "'orthobench[postgresql]'" if server else error.name
        raise UsageError(f"database {location} needs a driver that is not installed: pip install {needed}") from error
    if url.get_backend_name() == "sqlite":
        _prepare_sqlite(engine)
    try:
        version = _version(engine)
        if version is None and not create:
            raise UsageError(f"{location} holds no orthobench runs: name another database with --db")
        if version is None or version < HEAD:
            _upgrade(Store(engine), file)
        elif version > HEAD:
            raise UsageError(
                f"{location} was written by a newer orthobench (schema {version}, this one knows {HEAD}): "
                "run `pip install -U orthobench`"
            )
    except SQLAlchemyError as error:
        engine.dispose()
        raise UsageError(f"database {location} cannot be opened: {_reason(error)}") from error
    except UsageError:
        engine.dispose()
        raise
    return Store(engine)


def sqlite_file(location: str) -> Path | None:
    """The file behind a location, or None for a database server or memory."""
    return _file(_url(location))


def check_writable(location: str) -> None:
    """Refuse a place where no database could be written, before any work is done for it.

    Raises:
        UsageError: the folder is not there or is not writable, or the file is something else.
    """
    file = sqlite_file(location)
    if file is None:
        return
    _check_file(file, create=True)
    if not os.access(file if file.exists() else file.parent, os.W_OK) or not os.access(file.parent, os.W_OK):
        raise UsageError(f"database {file} cannot be written: name one elsewhere with --db")


def _url(location: str) -> URL:
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
    # Which driver the bare name stands for depends on SQLAlchemy's version; this one is the extra's.
    return url.set(drivername="postgresql+psycopg") if url.drivername == "postgresql" else url


def _file(url: URL) -> Path | None:
    """The SQLite file that a URL names; None for a server or memory."""
    name = url.database if url.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


def _check_file(file: Path, create: bool) -> None:
    refuse_network(file)
    if file.is_dir():
        raise UsageError(f"database {file} is a folder: give a file, such as {file / 'results.db'}")
    if not file.exists():
        if not create:
            raise UsageError(f"there is no database {file}: `orthobench run` makes one, --db names another")
        if not file.parent.is_dir():
            raise UsageError(f"database {file} cannot be made: there is no folder {file.parent}")
        return
    try:
        with file.open("rb") as stream:
            magic = stream.read(16)
    except OSError as error:
        raise UsageError(f"database {file} cannot be read: {error.strerror}") from error
    if magic and magic != b"SQLite format 3\0":
        raise UsageError(f"{file} is not a database: name another with --db")


def _prepare_sqlite(engine: Engine) -> None:
    """Own the transactions: Python's driver would begin none before a read or a table's creation.

    A transaction that writes begins as a writer; one that turns writer half-way fails at once when another process
    writes, whatever the timeout.
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
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _version(engine: Engine) -> str | None:
    """The schema's revision, or None in a database that is not ours (yet)."""
    with engine.connect() as connection:
        if not inspect(connection).has_table(VERSION_TABLE):
            return None
        version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
        return None if version is None else str(version)


def _upgrade(store: Store, file: Path | None) -> None:
    """Bring the schema up to date; processes that want to at once do so one after the other."""
    from filelock import FileLock

    engine, alone = store.engine, store.server.migration_lock() if store.server else nullcontext()
    with FileLock(file.with_name(f".{file.name}.lock")) if file else alone:
        version = _version(engine)
        if version == HEAD:
            return
        if file is not None and version is not None:
            _back_up(file, file.with_name(f"{file.name}.backup-{version}"))
        _migrate(engine)


def _back_up(file: Path, copy: Path) -> None:
    """Copy a database, after moving into its file what still stands in the write-ahead log beside it."""
    with closing(sqlite3.connect(file, timeout=BUSY_TIMEOUT_MS / 1000)) as connection:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(FULL)").fetchone()
    if busy:
        raise UsageError(f"database {file} is in use and cannot be upgraded: end the other processes first")
    shutil.copy2(file, copy)


def _migrate(engine: Engine) -> None:
    from alembic import command
    from alembic.config import Config

    if engine.dialect.name == "sqlite":
        with engine.connect() as connection:
            connection.connection.driver_connection.execute("PRAGMA journal_mode = WAL")  # type: ignore[union-attr]
    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations").replace("%", "%%"))
    with engine.connect().execution_options(writes=True) as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def _reason(error: SQLAlchemyError) -> str:
    cause = error.orig if isinstance(error, DatabaseError) and error.orig else error
    return str(cause).splitlines()[0]
