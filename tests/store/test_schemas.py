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
from support.schemas import (
    MIGRATION,
    NEWER,
    OLDER,
    SCHEMAS,
    add_revision,
    write_older,
    write_schema,
    write_schema_to_server,
)

from orthobench.errors import StorageError
from orthobench.store import MetricRow, open_store
from orthobench.store.backup import back_up
from orthobench.store.open import HEAD, MIGRATIONS, REVISIONS
from orthobench.store.row_checks import faults_in
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


VECTORS = {
    "by_length/accuracy": [0.5, 0.25],
    "gradient_norm/h": [1.5, math.inf, math.nan, 2.0**-149],
    "gradient_norm_per_sample/h": [0.75, -0.0, 3.0, 0.1],
    "gradient_norm/c": [7.0],
}
"""What each run of the files of older schemas has logged."""
METRICS = {"mse": {"goal": "min", "label": "MSE"}, "other": {"goal": "max"}}
GRADED = {"mnist": True, "regression:sensors": True, "adding": False, "mnist_like": False}
"""The tasks of these runs, and whether they are graded."""


def bits(vectors: dict[str, list[float]]) -> dict[str, bytes]:
    return {name: array("f", values).tobytes() for name, values in vectors.items()}


def test_there_is_a_file_of_each_schema():
    assert sorted(file.stem for file in SCHEMAS.glob("*.sql")) == REVISIONS


@pytest.mark.parametrize("revision", REVISIONS)
@pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
def test_database_of_an_older_program_is_read_with_all_that_it_has(kind, revision, tmp_path, request):
    if kind == "sqlite":
        location, file = str(tmp_path / "results.db"), tmp_path / "results.db"
        write_schema(file, revision)
        before = dump(file)
    else:
        location = request.getfixturevalue("postgres")
        write_schema_to_server(location, revision, tmp_path)
    with open_store(location) as store:
        runs = store.runs()
        assert [run.task for run in runs] == [*GRADED]
        for run in runs:
            own = {"is_graded": True} if GRADED[run.task] else {}
            assert run.metrics == {**METRICS, "mse": {**METRICS["mse"], **own}}
            assert run.main_metric.is_graded == GRADED[run.task]
            assert (run.final_value, run.tags, run.preset) == (0.25, ["old"], "quick")
            assert [(row.iteration, row.value) for row in store.metrics([run.id])] == [(0, 0.5), (5, 0.375), (10, 0.25)]
            assert bits({each.name: list(each.values) for each in store.traces([run.id])}) == bits(VECTORS)
        with store.engine.begin() as connection:
            blocks = connection.execute(text("SELECT vectors FROM trace")).scalars().all()
    assert all(bytes(block).startswith(b'{"gradient_norm/h":4,"gradient_norm/c":1}\n') for block in blocks)
    if kind == "sqlite":
        norms = look(file, f"SELECT state, step, value, kind FROM gradient_norms WHERE run = '{runs[0].key}'")
        assert norms == [
            *(("h", 0, 1.5, None), ("h", 1, None, "inf"), ("h", 2, None, "nan"), ("h", 3, 2.0**-149, None)),
            ("c", 0, 7.0, None),
        ]
        assert look(file, "SELECT task, value FROM metrics_flat WHERE iteration = 10") == [
            (task, 0.25) for task in GRADED
        ]
        assert dump(file if revision == HEAD else tmp_path / f"results.db.backup-{revision}") == before


@pytest.mark.parametrize("revision", REVISIONS)
def test_upgraded_file_has_the_tables_of_a_new_one(revision, tmp_path):
    """Column by column, in the order of a new file, and with the same indexes and views."""
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    write_schema(old, revision)
    for file in (old, new):
        open_store(str(file), create=True).close()
    names = look(new, "SELECT type, name FROM sqlite_master ORDER BY type, name")
    assert look(old, "SELECT type, name FROM sqlite_master ORDER BY type, name") == names
    for name in [name for kind, name in names if kind in ("table", "view")]:
        columns = f"SELECT name, type, \"notnull\", pk FROM pragma_table_info('{name}')"
        assert look(old, columns) == look(new, columns), name


@pytest.mark.parametrize("revision", REVISIONS)
def test_older_file_is_upgraded_over_a_new_column(revision, tmp_path, monkeypatch):
    file = tmp_path / "results.db"
    write_schema(file, revision)
    add_revision(tmp_path, monkeypatch.setattr)
    open_store(str(file)).close()
    assert look(file, "SELECT DISTINCT remark FROM run") == [("of rnn",)]
    assert look(file, f"SELECT * FROM {VERSION_TABLE}") == [(NEWER,)]


@pytest.mark.parametrize("version", ["0100", "0102"])
def test_schema_of_before_the_release_is_refused(version, tmp_path, orthobench):
    file = tmp_path / "results.db"
    write_schema(file, HEAD)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = ?", (version,))
    before = dump(file)
    for command in (["ls"], ["db", "upgrade"], ["db", "info"], ["run", "adding", "rnn"]):
        refused = orthobench(*command, "--db", file)
        assert (refused.code, refused.out) == (2, ""), command
        assert (
            f"was written before version 0.1.0 (schema {version}, the first one read is {REVISIONS[0]})" in refused.err
        )
    assert dump(file) == before


def test_views_of_a_column_that_a_later_schema_adds_are_created_after_it(tmp_path, monkeypatch, alembic_migration):
    """In a new file and in an older one: the first migration does not know the column."""
    old = tmp_path / "old.db"
    write_schema(old, HEAD)
    add_revision(tmp_path, monkeypatch.setattr)
    monkeypatch.setattr("orthobench.store.open._migrate", alembic_migration)
    monkeypatch.setattr("orthobench.store.views.RUNS_FLAT", "SELECT run.key AS run, run.remark FROM run")
    for file in (old, tmp_path / "new.db"):
        open_store(str(file), create=True).close()
        assert look(file, "SELECT DISTINCT remark FROM runs_flat") == ([("of rnn",)] if file == old else [])


def test_damaged_rows_of_older_files_stay_as_they_are(tmp_path, monkeypatch):
    """The check finds the blocks, and no migration fails by them or by damaged metrics."""
    file = tmp_path / "results.db"
    write_schema(file, HEAD)
    add_revision(tmp_path, monkeypatch.setattr)
    ((block,),) = look(file, "SELECT vectors FROM trace WHERE run_id = 1")
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE trace SET vectors = ? WHERE run_id = 2", (block[:-1],))
        connection.execute("UPDATE trace SET vectors = 'text' WHERE run_id = 3")
        connection.execute("UPDATE run SET metrics = '[]' WHERE id = 1")
    with open_store(str(file)) as store, store.engine.connect() as connection:
        faults = list(faults_in(connection))
    assert len([fault for fault in faults if "trace" in fault]) == 2, faults
    assert look(file, "SELECT vectors FROM trace WHERE run_id = 2") == [(block[:-1],)]
    assert look(file, "SELECT metrics FROM run WHERE id = 1") == [("[]",)]


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
