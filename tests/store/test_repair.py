"""`orthobench db repair`: every row that can be read is copied, and the damaged file stays as it is."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support.records import run_record
from support.schemas import NEWER, OLDER, add_revision

import orthobench as ob
from orthobench.errors import DamagedError, UsageError
from orthobench.metric import run_columns
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, open_store

PAGE = 4096
Rows = dict[str, dict[int, tuple[Any, ...]]]
FACTS = {"cpu": "x", "platform": "Linux", "cores": 2, "accelerator": None, "packages": {"torch": "2"}}
RUN_2 = {"run": 1, "metric": 5, "trace": 2, "tag": 1}
ALL = {"environment": 1, "run": 3, "metric": 15, "trace": 6, "tag": 3}
BROKEN = {
    "key": ("UPDATE run SET key = CAST(X'30ff31' AS TEXT) WHERE id = 2", RUN_2),
    "no environment": ("UPDATE run SET environment_id = 99 WHERE id = 2", RUN_2),
    "series": ("UPDATE series SET name = CAST(X'6dff' AS TEXT)", {"series": 1, "metric": 15}),
    "no runs": ("DELETE FROM run", ALL | {"environment": 0, "run": 0}),
    "no table": ("DROP TABLE trace", {}),
    "version": ("UPDATE orthobench_version SET version_num = X'ff'", {}),
}
"""Damage, and the number of rows that are lost by table."""
UNREAD = {
    "seed": ("UPDATE run SET seed = 1.5 WHERE id = 2", "1.5 is not a whole number"),
    "spec": ("UPDATE run SET spec = '[]' WHERE id = 2", "[] is not a JSON object"),
    "metric": ("UPDATE metric SET value = 'low' WHERE id IN (3, 7)", "'low' is not a number"),
}
"""Values that SQLite can read and this program cannot, and what it says of them."""


@pytest.fixture(scope="module")
def sound(tmp_path_factory) -> Path:
    """A database of three runs with rows."""
    path = tmp_path_factory.mktemp("sound") / "sound.db"
    with open_store(str(path), create=True) as store:
        for seed in range(3):
            resolved = resolve(Catalog(), "adding", "rnn", {"sequence_length": 10, "hidden_size": 8}, seed=seed)
            run = store.start(run_record(resolved.spec, **run_columns(resolved.task_class.metrics)), FACTS)
            tests = [0.5, 0.2, 0.1, 0.3, 0.4]
            rows = [MetricRow("test", "mse", i, i, value) for i, value in enumerate(tests)]
            ended = {"status": Status.FINISHED, "final_value": 0.4, "best_value": 0.1, "best_iteration": 2}
            ended |= {"iterations": 4, "message": "a note", "seconds": {"train": 2.0}}
            store.log(run.id, rows, [TraceRow("g", 0, i, [0.5] * 3) for i in range(2)], ended)
            store.tag([run.key], ["t"])
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
    return path


@pytest.fixture
def damage(sound, tmp_path, monkeypatch):
    """Return the function that copies the sound database to results.db and damages it."""
    monkeypatch.chdir(tmp_path)

    def inflict(statements: str) -> Path:
        path = tmp_path / "results.db"
        shutil.copy(sound, path)
        with closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"PRAGMA foreign_keys = OFF; {statements}")
        return path

    return inflict


def rows_of(path: Path) -> Rows:
    with closing(sqlite3.connect(path)) as connection:
        connection.text_factory = bytes
        names = [row[0].decode() for row in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: {row[0]: row for row in connection.execute(f'SELECT rowid, * FROM "{name}"')} for name in names}


@pytest.mark.parametrize("name", BROKEN)
def test_all_other_rows_are_copied(orthobench, damage, sound, name):
    statement, expected = BROKEN[name]
    path = damage(statement)
    broken, before = path.read_bytes(), rows_of(path)
    done = orthobench("db", "repair", "new.db")
    assert (done.code, done.err) == (0, "")
    assert path.read_bytes() == broken
    after = rows_of(Path("new.db"))
    lost = {table: len(rows) - len(after[table]) for table, rows in before.items() if table != "orthobench_version"}
    assert {table: count for table, count in lost.items() if count} == {t: n for t, n in expected.items() if n}
    for table, rows in rows_of(sound).items():
        # Without their numbers, because those of tags are new.
        assert {row[1:] for row in after[table].values()} <= {row[1:] for row in rows.values()}, table
    for table, count in expected.items():
        copied = len(after[table])
        if count or copied:
            assert f"{table}: {copied} row{'s' * (copied != 1)} copied, {count} lost\n" in done.out
    assert "integrity: ok" in orthobench("db", "info", "--db", "new.db").out
    assert orthobench("merge", "new.db", "--db", "merged.db").code == 0


@pytest.mark.parametrize("name", UNREAD)
def test_a_value_that_only_sqlite_can_read_is_copied_and_refused_where_it_is_read(orthobench, damage, name):
    statement, reason = UNREAD[name]
    damage(statement)
    assert orthobench("db", "repair", "new.db").code == 0
    merged, info = orthobench("merge", "new.db", "--db", "merged.db"), orthobench("db", "info", "--db", "new.db")
    assert (merged.code, merged.err.count("\n"), info.code) == (2, 1, 1)
    assert f"{reason}; correct or delete the row in SQL, or restore a backup\n" in merged.err
    assert reason in info.out
    assert not Path("merged.db").exists()


def test_rows_around_a_damaged_page_are_copied(damage, orthobench):
    """A page in the middle of the values, and two of vectors, the last one among them."""
    path = damage("")
    with open_store(str(path)) as store:
        rows = [MetricRow("train", "loss", i, i, 1 / (i + 1)) for i in range(3000)]
        store.log(1, rows, [TraceRow("g", 0, i, [i / 7] * 50) for i in range(5, 90)], {"iterations": 2999})
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA journal_mode = DELETE")
        pages = (
            {
                table: [page for (page,) in connection.execute(f"SELECT pageno FROM dbstat WHERE name = '{table}'")][1:]
                for table in ("metric", "trace")
            }
            if _has_dbstat(connection)
            else {}
        )
    if not pages:
        pytest.skip("SQLite was built without dbstat")
    content = bytearray(path.read_bytes())
    for page in (pages["metric"][5], pages["trace"][1], pages["trace"][-1]):
        content[(page - 1) * PAGE : page * PAGE] = bytes(PAGE)
    path.write_bytes(content)
    repaired = ob.repair("new.db")
    readable = {table: _readable(path, table, 3016) for table in ("metric", "trace")}
    assert {table: repaired.copied[table] for table in readable} == readable
    assert repaired.copied["run"] == 3
    assert 0 < (repaired.lost["metric"] or 0) < 500
    assert repaired.copied["metric"] + (repaired.lost["metric"] or 0) == 3015
    assert 0 < repaired.copied["trace"] < 91
    assert ob.open_results("new.db").runs().shape[0] == 3


def _readable(path: Path, table: str, last: int) -> int:
    """Count the rows that SQLite reads, each alone."""
    with closing(sqlite3.connect(path)) as connection:
        return sum(map(partial(_is_readable, connection, table), range(last + 1)))


def _is_readable(connection: sqlite3.Connection, table: str, number: int) -> bool:
    try:
        return connection.execute(f"SELECT * FROM {table} WHERE rowid = ?", (number,)).fetchone() is not None
    except sqlite3.DatabaseError:
        return False


def _has_dbstat(connection: sqlite3.Connection) -> bool:
    return any(name == "ENABLE_DBSTAT_VTAB" for (name,) in connection.execute("PRAGMA compile_options"))


def test_file_of_another_schema_is_refused_with_the_fix(damage, tmp_path, monkeypatch):
    damage("")
    add_revision(tmp_path, monkeypatch.setattr)
    with pytest.raises(UsageError, match=f"schema {OLDER}, and this program reads {NEWER}: `orthobench db upgrade"):
        ob.repair("new.db")
    damage("UPDATE orthobench_version SET version_num = '9999'")
    with pytest.raises(UsageError, match="use that version of orthobench"):
        ob.repair("new.db")
    assert not Path("new.db").exists()


def test_file_whose_schema_is_damaged_needs_a_backup(orthobench, damage):
    path = damage("")
    content = bytearray(path.read_bytes())
    content[100:200] = b"\xff" * 100
    path.write_bytes(content)
    done = orthobench("db", "repair", "new.db")
    assert (done.code, "; restore a backup\n" in done.err) == (2, True)
    assert not Path("new.db").exists()
    with pytest.raises(DamagedError, match=r"results\.db cannot be repaired: .*; restore a backup"):
        ob.repair("new.db")


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (("results.db",), "results.db exists already"),
        (("none/new.db",), "there is no folder none"),
        (("new.db", "--db", "none.db"), "there is no database none.db"),
        (("new.db", "--db", "postgresql://localhost/x"), "is on a server: `orthobench db info --check` lists"),
    ],
)
def test_what_cannot_be_repaired_is_one_line(orthobench, damage, words, reason):
    damage("")
    done = orthobench("db", "repair", *words)
    assert (done.code, done.err.count("\n"), reason in done.err) == (2, 1, True), done.err


def test_broken_run_with_the_same_key_is_refused_with_the_fix(orthobench, damage):
    """The row is in the way of the run that would be stored."""
    damage("UPDATE run SET iterations_per_epoch = 0 WHERE id = 1")
    done = orthobench("run", "adding", "rnn", "-s", "sequence_length=10", "-s", "hidden_size=8")
    assert done.code == 2
    assert "0 iterations per epoch; correct or delete the row in SQL, or restore a backup\n" in done.err


def test_api_returns_the_rows(damage):
    damage("UPDATE run SET environment_id = 99 WHERE id = 2")
    repaired = ob.repair("new.db")
    assert repaired.copied["run"] == 2
    assert {name: count for name, count in repaired.lost.items() if count} == RUN_2
