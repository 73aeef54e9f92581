"""An older schema is upgraded completely or not at all, after a copy of the old file."""

from __future__ import annotations

import math
import random
import signal
import sqlite3
import threading
from array import array
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest
from alembic.config import Config
from alembic.script import ScriptDirectory
from sqlalchemy import text
from support.crash import Kill, call
from support.records import run_record
from support.schemas import MIGRATION, NEWER, OLDER, add_revision, write_older

from orthobench.errors import StorageError
from orthobench.store import MetricRow, TraceRow, open_store
from orthobench.store.backup import back_up
from orthobench.store.damage import problems_of
from orthobench.store.open import HEAD, MIGRATIONS, REVISIONS
from orthobench.store.tables import VERSION_TABLE


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def look(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


@pytest.fixture
def old(tmp_path) -> Path:
    """A database of an older schema."""
    path = tmp_path / "results.db"
    write_older(path)
    return path


def test_last_migration_matches_the_programs_schema():
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == HEAD
    assert [script.revision for script in scripts.walk_revisions()] == REVISIONS[::-1]


def test_older_schema_is_upgraded_with_all_its_rows(old, tmp_path, monkeypatch):
    tables = [name for (name,) in look(old, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    contents = {name: look(old, f"SELECT * FROM {name}") for name in tables if name not in ("run", VERSION_TABLE)}
    (run,) = look(old, "SELECT * FROM run")
    before = dump(old)
    add_revision(tmp_path, monkeypatch.setattr)
    with open_store(str(old)) as store:
        assert len(store.metrics([1])) == 33
    assert {name: look(old, f"SELECT * FROM {name}") for name in contents} == contents
    assert look(old, "SELECT * FROM run") == [(*run, "of rnn")]
    assert look(old, f"SELECT * FROM {VERSION_TABLE}") == [(NEWER,)]
    assert look(old, "PRAGMA integrity_check") == [("ok",)]
    assert dump(tmp_path / f"results.db.backup-{OLDER}") == before


BLOCK_OF_0101 = bytes.fromhex(
    "78f9b79b7298c26e3336d34cf01b668225c40c6bb900b2ffcf68cfd060ef70e02f33400c0d0e071c1cec0f38f40803c40006ff1918ce1803"
    "0666310299678d019d2c2e1b"
)
VECTORS_OF_0101 = {
    "by_length/accuracy": [0.5, 0.25],
    "gradient_norm/h": [1.5, math.inf, math.nan, 2.0**-149],
    "gradient_norm_per_sample/h": [0.75, -0.0, 3.0, 0.1],
    "gradient_norm/c": [7.0],
}
"""What the program of schema 0101 packed into this block."""


def bits(vectors: dict[str, list[float]]) -> dict[str, bytes]:
    return {name: array("f", values).tobytes() for name, values in vectors.items()}


def test_blocks_of_schema_0101_are_packed_again_on_a_server(postgres):
    with open_store(postgres, create=True) as store:
        run = store.start(run_record(), {})
        store.log(run.id, [], [TraceRow("a", 0, 1, [1.0])], {"iterations": 1})
        with store.engine.begin() as connection:
            connection.execute(text("UPDATE trace SET vectors = :block"), {"block": BLOCK_OF_0101})
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0101'"))
    with open_store(postgres) as store:
        assert bits({each.name: list(each.values) for each in store.traces([run.id])}) == bits(VECTORS_OF_0101)
        with store.engine.begin() as connection:
            (block,) = connection.execute(text("SELECT vectors FROM trace")).scalars()
    assert bytes(block).startswith(b'{"gradient_norm/h":4,"gradient_norm/c":1}\n')


def test_gradient_norms_of_schema_0101_become_plain(old):
    """Damaged blocks stay, so that a repair finds them."""
    run = look(old, "SELECT min(id) FROM run")[0][0]
    vectors = [BLOCK_OF_0101, BLOCK_OF_0101[:-1], BLOCK_OF_0101]
    with closing(sqlite3.connect(old)) as connection, connection:
        connection.executescript(
            f"DELETE FROM trace; DROP VIEW gradient_norms; UPDATE {VERSION_TABLE} SET version_num = '0101'"
        )
        rows = [(run, 0, iteration, block) for iteration, block in enumerate(vectors)]
        connection.executemany("INSERT INTO trace (run_id, epoch, iteration, vectors) VALUES (?, ?, ?, ?)", rows)
        connection.execute("UPDATE trace SET vectors = CAST(x'ff' AS TEXT) WHERE iteration = 2")
    with open_store(old) as store:
        traces = {each.name: list(each.values) for each in store.traces([run])}
        damages = problems_of(store.engine)
    assert bits(traces) == bits(VECTORS_OF_0101)
    assert len(damages) == 2
    assert look(old, "SELECT vectors FROM trace WHERE iteration = 1") == [(BLOCK_OF_0101[:-1],)]
    norms = look(old, "SELECT state, step, value, kind FROM gradient_norms WHERE iteration = 0")
    assert norms == [
        *(("h", 0, 1.5, None), ("h", 1, None, "inf"), ("h", 2, None, "nan"), ("h", 3, 2.0**-149, None)),
        ("c", 0, 7.0, None),
    ]
    assert look(old.with_name("results.db.backup-0101"), "SELECT vectors FROM trace LIMIT 1") == [(BLOCK_OF_0101,)]


@pytest.mark.parametrize(
    ("task", "is_graded"), [("mnist", True), ("regression:sensors", True), ("adding", False), ("mnist_like", False)]
)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_graded_tasks_of_schema_0102_say_so(kind, task, is_graded, tmp_path, request):
    """Other metrics of the task stay as they were, and so does a row with damaged metrics."""
    location = request.getfixturevalue("postgres") if kind == "postgresql" else str(tmp_path / "results.db")
    metrics = {"mse": {"goal": "min", "label": "MSE"}, "other": {"goal": "max"}}
    with open_store(location, create=True) as store:
        run, damaged = (store.start(run_record(key=key, metrics=metrics), {}) for key in ("a" * 16, "b" * 16))
        with store.engine.begin() as connection:
            connection.execute(text("UPDATE run SET task = :task"), {"task": task})
            connection.execute(text("UPDATE run SET metrics = '[]' WHERE id = :id"), {"id": damaged.id})
            connection.execute(text(f"UPDATE {VERSION_TABLE} SET version_num = '0102'"))
    with open_store(location) as store:
        upgraded = store.runs(keys=[run.key])[0]
        with store.engine.begin() as connection:
            (left,) = connection.execute(text("SELECT metrics FROM run WHERE id = :id"), {"id": damaged.id}).scalars()
    own = {"is_graded": True} if is_graded else {}
    assert upgraded.metrics == {**metrics, "mse": {**metrics["mse"], **own}}
    assert upgraded.main_metric.is_graded == is_graded
    assert left in ("[]", [])


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.slow
def test_killed_upgrade_changes_nothing(seed, old, tmp_path):
    """Killed at any line, the upgrade leaves a file that the old program can use and the new program can upgrade."""
    original, before = old.read_bytes(), dump(old)
    upgrade = partial(call, tmp_path, ["db", "upgrade"], prepare=add_revision)
    assert upgrade(lines=tmp_path / "lines") == 0, (tmp_path / "output").read_text()
    lines = (tmp_path / "lines").read_text().splitlines()
    done = dump(old)
    killed = 0
    for line in random.Random(seed).sample(range(len(lines)), 3):
        for leftover in tmp_path.glob("results.db*"):
            leftover.unlink()
        old.write_bytes(original)
        killed += upgrade(Kill(line=line)) == -signal.SIGKILL
        assert look(old, "PRAGMA integrity_check") == [("ok",)]
        assert dump(old) in (before, done)
        assert upgrade() == 0, (tmp_path / "output").read_text()
        assert dump(old) == done
    assert killed == 3


def test_upgrade_is_one_transaction(old, tmp_path, monkeypatch):
    """A failure in the last step rolls the first steps back."""
    before = dump(old)
    add_revision(tmp_path, monkeypatch.setattr, f"{MIGRATION}    raise SystemError('cut off')\n")
    with pytest.raises(SystemError):
        open_store(str(old))
    assert dump(old) == before


def test_upgrade_without_room_for_the_backup_is_refused(old, tmp_path, monkeypatch):
    class Full(sqlite3.Connection):
        def backup(self, *arguments, **options):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    before, connect = dump(old), sqlite3.connect
    add_revision(tmp_path, monkeypatch.setattr)
    monkeypatch.setattr("sqlite3.connect", lambda *a, **k: connect(*a, **{"factory": Full, **k}))
    with pytest.raises(StorageError, match=rf"backup-{OLDER} cannot be written: the disk is full: make room there"):
        open_store(str(old))
    monkeypatch.undo()
    assert dump(old) == before
    assert not list(old.parent.glob("*backup*"))


def test_backup_taken_during_writes_is_one_moment(tmp_path):
    """Each transaction writes a row and its number into the run: in every copy the two agree."""
    path, stop = tmp_path / "r.db", threading.Event()
    with open_store(str(path), create=True) as store:
        run = store.start(run_record(), {})

        def write() -> None:
            at = 0
            while not stop.is_set():
                at += 1
                store.log(run.id, [MetricRow("test", "m", 0, at, 1.0)], [], {"iterations": at})

        writer = threading.Thread(target=write)
        writer.start()
        seen = []
        try:
            while len(set(seen)) < 5:
                copy = tmp_path / f"copy{len(seen)}.db"
                back_up(path, copy)
                ((iterations, rows),) = look(copy, "SELECT iterations, (SELECT count(*) FROM metric) FROM run")
                assert iterations == rows
                seen.append(rows)
        finally:
            stop.set()
            writer.join()
    assert seen == sorted(seen)
