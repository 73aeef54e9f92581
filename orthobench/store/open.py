"""Open, create and upgrade a database at a file's path or any SQLAlchemy URL.

The old file is copied first, and the upgrade is then one transaction, so an interrupted upgrade changes nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any, TypeVar

from sqlalchemy import Connection, Engine, create_engine, inspect, text
from sqlalchemy.exc import ArgumentError, DatabaseError, SQLAlchemyError
from sqlalchemy.pool import NullPool

from orthobench.errors import OrthobenchError, UsageError, installation, shell_command
from orthobench.store.backup import back_up
from orthobench.store.damage import check_before_writing, check_tables, refuse_views
from orthobench.store.row_checks import refusing_damage
from orthobench.store.server import ENGINE_ARGUMENTS, DatabaseServer
from orthobench.store.sqlite import connect, damaged, is_read_only, prepare, refuse_network, translated_errors, uri_of
from orthobench.store.store import Store
from orthobench.store.tables import VERSION_TABLE
from orthobench.store.views import create_views, drop_views
from orthobench.system.files import storage_error
from orthobench.system.location import DEFAULT_DATABASE, Location, Place
from orthobench.system.strict_json import load_json

MIGRATIONS = Path(__file__).with_name("migrations")
REVISIONS = sorted(file.stem[1:5] for file in MIGRATIONS.joinpath("versions").glob("v*.py"))
"""The revisions of the schema: migrations are named v0103_first.py and so on."""
HEAD = REVISIONS[-1]

T = TypeVar("T")


class DatabaseNotFoundError(UsageError):
    """The location has no database, or a database without the tables of orthobench."""


def without_runs(location: Location) -> DatabaseNotFoundError:
    """Return the error for a database without the tables of orthobench."""
    return DatabaseNotFoundError(f"{location} holds no orthobench runs: name another database with `db`")


def newer_schema(location: Location, version: str) -> UsageError:
    """Return the error for a database of a newer schema."""
    return UsageError(
        f"{location} was written by a newer orthobench (schema {version}, this one knows {HEAD}): "
        "use that version of orthobench"
    )


def open_store(place: Place, *, create: bool = False, stop_waiting: Callable[[], bool] | None = None) -> Store:
    """Open the database at a path or URL.

    An older schema is upgraded; a SQLite file is copied before the upgrade.

    Args:
        place: "results.db", or a URL such as "postgresql://host/name".
        create: whether to create a missing database.
        stop_waiting: as for `reach_database`.

    Raises:
        UsageError: the database is missing, cannot be opened, has no runs of orthobench, or has a newer schema.
        StorageError: its server was lost.
    """
    location = Location.of(place)
    engine, file = open_engine(location, create=create), location.file

    def upgrade_or_check() -> None:
        if create and file is not None:
            # Before anything else, because a write to a damaged file may damage more of it.
            check_before_writing(file)
        version = schema_revision(engine, location)
        if version is None and not create:
            raise without_runs(location)
        if version is None:
            _refuse_other_tables(engine, location)
        if version is None or version < HEAD:
            upgrade(engine, file)
        elif version > HEAD:
            raise newer_schema(location, version)
        else:
            check_tables(engine, location)

    try:
        reach_database(engine, location, upgrade_or_check, stop_waiting)
    except OrthobenchError:
        engine.dispose()
        raise
    return Store(engine)


def open_read_only(place: Place) -> Store:
    """Open the database at a path or URL so that nothing can be written through it.

    Raises:
        UsageError: the database is missing, cannot be opened, or has a different schema from this program's.
        StorageError: its server was lost.
    """
    location = Location.of(place)
    engine, file = open_engine(location), location.file
    if file is None:
        engine = engine.execution_options(postgresql_readonly=True)
    else:
        engine.update_execution_options(reads_only=True)
    try:
        version = reach_database(engine, location, lambda: schema_revision(engine, location))
        if version is None:
            raise without_runs(location)
        if version != HEAD:
            fix = (
                "use that version of orthobench"
                if version > HEAD
                else f"`{shell_command('db', 'upgrade', '--db', location)}`"
            )
            raise UsageError(f"{location} has the schema {version}, and this program reads {HEAD}: {fix}")
    except OrthobenchError:
        engine.dispose()
        raise
    return Store(engine)


def reach_database(
    engine: Engine, location: Location, work: Callable[[], T], stop_waiting: Callable[[], bool] | None = None
) -> T:
    """Call `work`, the first access to a database, and return its result.

    If the server is lost during the work, wait for it and repeat the work. A server that never answered is an error.

    Args:
        stop_waiting: if given, this command has used the server before, and waits for it even if it does not answer.
            The wait ends when the function returns true.

    Raises:
        UsageError: the database cannot be opened.
        StorageError: the server was lost.
    """
    try:
        if engine.dialect.name != "postgresql":
            with refusing_damage(engine):
                return work()
        server = DatabaseServer(engine)
        if stop_waiting is None:
            server.connect()
        else:
            server.stop_waiting = stop_waiting
        return server.with_retries(work)
    except SQLAlchemyError as error:
        raise UsageError(f"database {location} cannot be opened: {driver_message(error)}") from error


def open_engine(location: Location, *, create: bool = False) -> Engine:
    """Return an engine for the database at a path or URL, of any schema.

    Unless `create` is set, the engine connects to a file anew for each transaction. A web server or a notebook that
    stays open thus holds no connection between two reads, and folds the write-ahead log after each of them.

    Raises:
        UsageError: the database is missing (unless `create`), is not a database, or its driver is not installed.
    """
    url, file = location.url, location.file
    if file is not None:
        _check_file(file, create)
        if not create and is_read_only(file):
            url = url.set(database=uri_of(file), query={"uri": "true", "immutable": "1"})
    server = url.get_backend_name() == "postgresql"
    arguments: dict[str, Any] = {}
    if server:
        arguments = ENGINE_ARGUMENTS
    elif file is not None and not create:
        arguments = {"poolclass": NullPool}
    try:
        engine = create_engine(url, json_deserializer=_read_json, **arguments)
    except ImportError as error:
        fix = installation("postgresql") if server else "use SQLite or PostgreSQL"
        raise UsageError(f"database {location} needs a driver that is not installed: {fix}") from error
    except ArgumentError as error:  # such as ?port=none
        raise UsageError(f"database {location} cannot be opened: {driver_message(error)}") from error
    if url.get_backend_name() == "sqlite":
        prepare(engine, file)
    return engine


def _read_json(stored: Any) -> Any:
    """Return the value of a stored JSON text, or of its bytes, which PostgreSQL's driver passes on."""
    if not isinstance(stored, str | bytes):  # a file may hold a number in such a column
        raise ValueError(f"{stored!r:.40} is not a JSON object")
    return load_json(stored)


def check_writable(location: Location) -> None:
    """Refuse a location that is not writable, before any training.

    Raises:
        UsageError: the folder does not exist or is not writable, the path is a folder, or the database is in memory.
    """
    file = location.file
    if file is None:
        if location.url.get_backend_name() == "sqlite":
            raise UsageError(f"the results in {location} would be lost at the end: give a file, such as `db='runs.db'`")
        return
    _check_file(file, create=True)
    if not os.access(file if file.exists() else file.parent, os.W_OK) or not os.access(file.parent, os.W_OK):
        raise UsageError(f"database {file} cannot be written: name one elsewhere")


def _check_file(file: Path, create: bool) -> None:
    refuse_network(file)
    if file.is_dir():
        raise UsageError(f"database {file} is a folder: give a file, such as {file / 'results.db'}")
    if not file.exists():
        if not create:
            # Not for a named file, because training would hide a typo in its name, or a missing source of `merge`.
            fix = "create it with `orthobench run adding scornn --preset quick`, or name another with `db`"
            is_default = str(file) == str(DEFAULT_DATABASE)
            raise DatabaseNotFoundError(f"there is no database {file}: {fix if is_default else 'check its name'}")
        if not file.parent.is_dir():
            raise UsageError(f"database {file} cannot be created: there is no folder {file.parent}")
        return
    # Only SQLite may open the file, because closing it here would free all locks of this process on it. Another process
    # could then remove the log of an open connection, with all later writes to it.
    if not os.access(file, os.R_OK):
        raise UsageError(f"database {file} cannot be read: make it readable, or name another")


def stored_revision(location: Location) -> str:
    """Return the schema's revision of a database with runs.

    Raises:
        UsageError: the database is missing, cannot be opened, or has no runs of orthobench.
        DamagedError: as for `schema_revision`.
    """
    engine = open_engine(location)
    try:
        version = reach_database(engine, location, lambda: schema_revision(engine, location))
    finally:
        engine.dispose()
    if version is None:
        raise without_runs(location)
    return version


def schema_revision(engine: Engine, location: Location) -> str | None:
    """Return the schema's revision; None for a database without the tables of orthobench.

    Raises:
        DamagedError: the stored revision does not exist, or a view has the name of a table.
        UsageError: the schema is of before the first release.
    """
    refuse_views(engine)
    with engine.connect() as connection:
        version = _version(connection)
    if version is None or version in REVISIONS or (re.fullmatch("[0-9]{4}", version) and version > HEAD):
        return version
    if re.fullmatch("[0-9]{4}", version) and version < REVISIONS[0]:
        raise UsageError(
            f"{location} was written before version 0.1.0 (schema {version}, the first one read is {REVISIONS[0]}): "
            "train its runs again, or upgrade it with a commit of before 2026-11-29"
        )
    raise damaged(location, f"its schema '{version}' is unknown")


def _refuse_other_tables(engine: Engine, location: Location) -> None:
    """Refuse a SQLite database with tables of another program; on a server, programs may share a database.

    Raises:
        UsageError: the database has such tables; it stays as it is.
    """
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:  # another process may have created our tables in the meantime
        names = inspect(connection).get_table_names()
    if names and VERSION_TABLE not in names:
        raise UsageError(
            f"{location} is a database of another program (it has a table {names[0]}) and is left as it is: name "
            "another database with `db`"
        )


def _version(connection: Connection) -> str | None:
    if not inspect(connection).has_table(VERSION_TABLE):
        return None
    version = connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one_or_none()
    return None if version is None else str(version)


def backup_of(file: Path, version: str) -> Path:
    """Return the path of the copy that is written before the upgrade of an older schema."""
    return file.with_name(f"{file.name}.backup-{version}")


def upgrade(engine: Engine, file: Path | None) -> None:
    """Upgrade the schema to the newest one in one transaction; concurrent processes wait for each other.

    A SQLite file is copied first; a server's database is not.

    Raises:
        StorageError: the disk has no room for the copy or the new tables.
    """
    # A lock in addition to the transaction, because the journal's mode is changed outside of it.
    with _upgrade_lock(engine, file):
        if file is not None:
            with translated_errors(file, f"database {file} cannot be used"), connect(file) as plain:
                # On a connection of its own, because SQLite cannot change the journal within a transaction.
                plain.execute("PRAGMA journal_mode = WAL")
        # The version is read again inside, because another process may have
        # upgraded while this one waited for the lock.
        with engine.connect().execution_options(writes=True) as connection, connection.begin():
            version = _version(connection)
            if version == HEAD:
                return
            if file is not None and version is not None:
                back_up(file, backup_of(file, version), locked=True)  # no other process writes during this transaction
            _migrate(connection)


def _upgrade_lock(engine: Engine, file: Path | None) -> AbstractContextManager[object]:
    from filelock import FileLock

    if file is None:
        if engine.dialect.name != "postgresql":
            return nullcontext()
        return DatabaseServer(engine).migration_lock()
    lock = FileLock(file.with_name(f".{file.name}.lock"))
    try:
        return lock.acquire()
    except OSError as error:
        raise storage_error(f"database {file}", error) from error


def _migrate(connection: Connection) -> None:
    from alembic import command
    from alembic.config import Config

    config = Config()
    # Doubled, because alembic's configuration interpolates %.
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    drop_views(connection)  # a file from elsewhere may have others of these names
    command.upgrade(config, "head")
    create_views(connection)


def driver_message(error: SQLAlchemyError) -> str:
    """Return the first line of the driver's message."""
    cause = error.orig if isinstance(error, DatabaseError) and error.orig else error
    return str(cause).splitlines()[0]
