"""A database of an older schema: that of today, seen by a program that knows one revision more."""

from __future__ import annotations

import importlib
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

from support.pages import add_run

from orthobench.store import open as open_module
from orthobench.store import open_store

OLDER = open_module.HEAD
NEWER = f"{int(OLDER) + 1:04}"
USERS = ("store.open", "store.merge", "store.repair", "store.describe", "diagnosis.storage")
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
    put(open_module, "REVISIONS", [OLDER, NEWER])
    for module in modules:
        put(module, "HEAD", NEWER)
