"""A schema of a stranger: its triggers are not merged, and its views are not read and call no function of SQLite's."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from support.records import key_of, run_record

import orthobench
from orthobench.errors import DamagedError
from orthobench.store import open_store
from orthobench.store.open import open_engine
from orthobench.store.sqlite import connect
from orthobench.store.tables import VERSION_TABLE, Base
from orthobench.system.location import Location

KEY = key_of(seed=0)


@pytest.fixture
def file(tmp_path):
    """A database with a run, and a trigger that falsifies its results."""
    file = tmp_path / "r.db"
    with open_store(str(file), create=True) as store:
        store.start(run_record(), {})
    with closing(sqlite3.connect(file)) as database, database:
        database.execute("CREATE TRIGGER evil AFTER INSERT ON tag BEGIN UPDATE run SET final_value = 0; END")
    return file


def test_merge_leaves_triggers_behind(orthobench, file):
    assert orthobench("db", "merge", "r.db", "--db", "new.db").code == 0
    with open_store("new.db", create=True) as store:
        store.tag([KEY], ["x"])
        assert store.runs()[0].tags == ["x"]


def test_no_connection_trusts_the_schema(file):
    with connect(file) as connection:
        assert connection.execute("PRAGMA trusted_schema").fetchone() == (0,)
    engine = open_engine(Location(str(file)))
    with engine.connect() as opened:
        assert opened.exec_driver_sql("PRAGMA trusted_schema").scalar() == 0
    engine.dispose()


def test_only_one_module_opens_files_without_sqlalchemy():
    """Each connection there distrusts the schema; a backup has opened one of its own."""
    package = Path(orthobench.__file__).parent
    openers = [file.name for file in package.rglob("*.py") if "sqlite3.connect(" in file.read_text("utf-8")]
    assert openers == ["sqlite.py"]


LONG = (
    "WITH RECURSIVE long(id) AS (SELECT 1 UNION ALL SELECT id + 1 FROM long LIMIT 2000000)"
    " SELECT {} FROM long WHERE id < 0"
)
"""A query that takes long and yields nothing; without its limit it would not end, nor would a test that fails."""
COMMANDS = {
    "ls": ("ls",),
    "show": ("show", KEY),
    "report": ("report", "--html"),
    "compare": ("compare", "model=rnn", "model=lstm"),
    "compare files": ("compare-databases", "s.db", "new.db"),
    "info": ("db", "info"),
    "backup": ("db", "backup", "copy.db"),
    "upgrade": ("db", "upgrade"),
    "merge": ("db", "merge", "s.db"),
    "publish": ("publish", "site", "s.db"),
    "run": ("run", "adding", "rnn", "--preset", "quick"),
    "delete": ("delete", "--model", "rnn", "--yes"),
}


@pytest.fixture(scope="module")
def sound(tmp_path_factory):
    file = tmp_path_factory.mktemp("sound") / "s.db"
    with open_store(str(file), create=True) as store:
        store.start(run_record(), {})
    return file


def shadow(file, table):
    """Replace a table by a long view of the same columns."""
    with closing(sqlite3.connect(file)) as database, database:
        columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
        values = ", ".join(f"'0001' AS \"{name}\"" for name in columns)
        database.execute(f"ALTER TABLE {table} RENAME TO hidden")
        database.execute(f"CREATE VIEW {table.upper()} AS {LONG.format(values)}")


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("table", [VERSION_TABLE, "run", "metric"])
def test_long_view_in_place_of_a_table_is_one_line(orthobench, sound, tmp_path, table, command):
    shutil.copy(sound, tmp_path / "s.db")
    shutil.copy(sound, tmp_path / "new.db")
    shadow(tmp_path / "s.db", table)
    words = COMMANDS[command]
    if "s.db" not in words:
        words += ("--db", "s.db")
    elif command == "merge":
        words += ("--db", "new.db")
    done = orthobench(*words)
    assert done.code == 2
    assert f"s.db is damaged: its {table.upper()} is a view, not a table; restore a backup" in done.err
    assert done.err.count("\n") == 1
    assert not Path("copy.db").exists()


@pytest.mark.parametrize("table", [VERSION_TABLE, "metric"])
def test_repair_leaves_a_view_out(orthobench, sound, tmp_path, table):
    shutil.copy(sound, tmp_path / "s.db")
    shadow(tmp_path / "s.db", table)
    done = orthobench("db", "repair", "new.db", "--db", "s.db")
    assert (done.code, "run: 1 row copied, 0 lost\n" in done.out) == (0, True)
    assert orthobench("ls", "--db", "new.db").code == 0


def test_every_table_may_be_shadowed(sound, tmp_path):
    for table in Base.metadata.tables:
        file = tmp_path / f"{table}.db"
        shutil.copy(sound, file)
        shadow(file, table)
        with pytest.raises(DamagedError, match=f"its {table.upper()} is a view"):
            open_store(str(file))


def test_view_of_another_name_is_not_read(orthobench, sound, tmp_path):
    shutil.copy(sound, tmp_path / "s.db")
    with closing(sqlite3.connect("s.db")) as database, database:
        database.execute(f"CREATE VIEW others AS {LONG.format('id')}")
    for words in (*map(COMMANDS.get, ("ls", "show", "report", "info", "backup")), ("db", "repair", "repaired.db")):
        assert orthobench(*words, "--db", "s.db").code == 0, words
