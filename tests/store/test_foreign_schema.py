"""A schema of a stranger: its triggers change nothing, and its views call no function of SQLite's."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from support.records import make_run_record

from orthobench.errors import UsageError
from orthobench.store import open_store
from orthobench.store.connect import connect
from orthobench.store.open import make_engine

KEY = "0123456789abcdef"


@pytest.fixture
def file(tmp_path):
    """A database with a run, and a trigger that falsifies its results."""
    file = tmp_path / "r.db"
    with open_store(str(file), create=True) as store:
        store.start(make_run_record(key=KEY), "m", {})
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TRIGGER evil AFTER INSERT ON tag BEGIN UPDATE run SET final_value = 0; END")
    return file


def test_a_database_with_triggers_is_read_and_not_written(file):
    with open_store(str(file)) as store:
        (run,) = store.runs()
        for write in (lambda: store.tag([KEY], ["x"]), lambda: store.delete(run.id)):
            with pytest.raises(UsageError, match="has a trigger 'evil' that orthobench did not make"):
                write()
        assert store.runs()[0].tags == []
    with pytest.raises(UsageError, match="trigger 'evil'"):
        open_store(str(file), create=True)


def test_a_merge_leaves_triggers_behind(orthobench, file):
    assert orthobench("db", "merge", "r.db", "--db", "new.db").code == 0
    with open_store("new.db", create=True) as store:
        store.tag([KEY], ["x"])
        assert store.runs()[0].tags == ["x"]


def test_no_connection_trusts_the_schema(file):
    with connect(file) as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
    engine = make_engine(str(file))
    with engine.connect() as opened:
        assert opened.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
    engine.dispose()
