"""Databases of older schemas: those that older programs wrote, and today's, seen by one that knows a revision more.

The files in tests/store/schemas were written by the code that had each schema, with four runs, and dumped as SQL. The
names of the runs were corrected by hand to those that follow from their specs.
"""

from __future__ import annotations

import importlib
import json
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from support.pages import add_run

from orthobench.store import open as open_module
from orthobench.store import open_store
from orthobench.system.location import Location

SCHEMAS = Path(__file__).parent.parent / "store" / "schemas"
OLDER = open_module.HEAD
NEWER = f"{int(OLDER) + 1:04}"
USERS = ("store.open", "store.merge", "store.describe", "diagnosis.storage")
"""The modules that know the newest revision."""
MIGRATION = f'''
import sqlalchemy as sa
from alembic import op

revision = "{NEWER}"
down_revision = "{OLDER}"


def upgrade() -> None:
    op.add_column("run", sa.Column("remark", sa.String(), nullable=True))
    op.execute("UPDATE run SET remark = 'of ' || model")
    op.create_index("ix_run_remark", "run", ["remark"])
'''


def write_older(path: Path) -> str:
    """Write a database of today's schema with one finished run, a single file without a log; return the run's key."""
    with open_store(str(path), create=True) as store:
        key = add_run(store, "rnn")
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return key


def write_schema(path: Path, revision: str) -> None:
    """Write the database that the program of a schema wrote."""
    with closing(sqlite3.connect(path)) as connection:
        connection.executescript((SCHEMAS / f"{revision}.sql").read_text("utf-8"))


def write_schema_to_server(url: str, revision: str, folder: Path) -> None:
    """Upgrade an empty database of a server to a revision, and insert the rows that the program of its schema wrote."""
    file, config = folder / f"{revision}.db", Config()
    write_schema(file, revision)
    config.set_main_option("script_location", str(open_module.MIGRATIONS))
    engine, tables = sa.create_engine(Location(url).url), sa.MetaData()
    with engine.begin() as connection, closing(sqlite3.connect(file)) as written:
        config.attributes["connection"] = connection
        command.upgrade(config, revision)
        tables.reflect(connection)
        written.row_factory = sqlite3.Row
        for table in tables.sorted_tables:
            rows = [dict(row) for row in written.execute(f"SELECT * FROM {table.name}")]
            for column in table.columns:
                for row in rows:
                    row[column.name] = _for_server(column.type, row[column.name])
            if rows and table.name != "orthobench_version":
                connection.execute(sa.insert(table), rows)
    engine.dispose()


def _for_server(kind: Any, value: Any) -> Any:
    """Return a value of an SQLite file as a column of a server takes it."""
    if isinstance(kind, sa.JSON) and value is not None:
        return json.loads(value)
    return datetime.fromisoformat(value) if isinstance(kind, sa.DateTime) else value


def add_revision(folder: Path, put: Callable[[object, str, object], None] = setattr, script: str = MIGRATION) -> None:
    """Let this process know a second revision, whose script is written below a folder.

    Args:
        put: sets an attribute; that of pytest's monkeypatch undoes it.
    """
    migrations = folder / "migrations"
    shutil.copytree(open_module.MIGRATIONS, migrations, dirs_exist_ok=True)
    (migrations / "versions" / f"v{NEWER}_second.py").write_text(script)
    modules = [importlib.import_module(f"orthobench.{name}") for name in USERS]  # all of them before any change
    put(open_module, "MIGRATIONS", migrations)
    put(open_module, "REVISIONS", [*open_module.REVISIONS, NEWER])
    for module in modules:
        put(module, "HEAD", NEWER)
