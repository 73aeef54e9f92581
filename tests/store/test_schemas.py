"""Every past schema is upgraded completely or not at all, after a copy of the old file."""

from __future__ import annotations

import random
import shutil
import signal
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from support.crash import Kill, call
from support.records import make_run_record

import orthobench.store.migrations
from orthobench.errors import StorageError
from orthobench.plugins import Catalog
from orthobench.store import MetricRow, open_store
from orthobench.store.backup import back_up
from orthobench.store.open import HEAD
from orthobench.store.tables import VERSION_TABLE, Base

KEPT = {path.stem.removeprefix("schema_"): path for path in Path(__file__).parent.glob("schema_*.db")}


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def look(path: Path, query: str) -> list[tuple]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def columns(path: Path, table: str) -> str:
    """Return the columns of a table as an SQL list."""
    return ", ".join(f'"{column}"' for _, column, *_ in look(path, f"PRAGMA table_info({table})"))


@pytest.fixture
def old(tmp_path):
    """A copy of the database of a past schema."""

    def make(revision: str) -> Path:
        path = tmp_path / "results.db"
        shutil.copy(KEPT[revision], path)
        return path

    return make


def test_every_past_schema_is_kept():
    config = Config()
    config.set_main_option("script_location", str(Path(orthobench.store.migrations.__file__).parent))
    scripts = ScriptDirectory.from_config(config)
    assert scripts.get_current_head() == HEAD
    revisions = {script.revision for script in scripts.walk_revisions()}
    assert revisions - {HEAD} <= KEPT.keys()


@pytest.mark.parametrize("revision", sorted(KEPT))
def test_a_past_schema_is_upgraded_with_all_that_is_in_it(revision, old):
    path = old(revision)
    tables = [name for (name,) in look(path, "SELECT name FROM sqlite_master WHERE type = 'table'")]
    assert look(path, f"SELECT * FROM {VERSION_TABLE}") == [(revision,)]
    tables.remove(VERSION_TABLE)
    contents = {name: f"SELECT {columns(path, name)} FROM {name}" for name in tables}
    before = {name: sorted(look(path, query), key=repr) for name, query in contents.items()}
    assert before["run"]
    with open_store(str(path)) as store:
        with store.engine.connect() as connection:
            context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
            assert context.get_current_revision() == HEAD
            assert compare_metadata(context, Base.metadata) == []
        runs = store.runs()
        assert len(runs) == len(before["run"])
        assert all(store.metrics([run.id]) for run in runs)
    assert {name: sorted(look(path, query), key=repr) for name, query in contents.items()} == before
    assert look(path, "PRAGMA integrity_check") == [("ok",)]
    copy = path.with_name(f"results.db.backup-{revision}")
    assert copy.exists() == (revision != HEAD)
    assert revision == HEAD or dump(copy) == dump(KEPT[revision])


def test_old_runs_get_their_metrics_declarations(old):
    """A built-in task gets all its declarations, another task that of its main metric."""
    path = old("0003")
    catalog = Catalog()
    builtin = ["adding", "copying", "mnist", "cifar10", "ptb", "timit"]
    with closing(sqlite3.connect(path)) as connection, connection:
        others = [name for name in columns(path, "run").split(", ") if name not in ('"id"', '"key"', '"task"')]
        copied = ", ".join(others)
        for number, task in enumerate([*builtin, "parity", "copied"]):
            source = f"SELECT ?, ?, {copied} FROM run LIMIT 1"
            connection.execute(f'INSERT INTO run ("key", "task", {copied}) {source}', (f"{number:016x}", task))
        connection.execute("UPDATE run SET metric = 'balance', goal = 'max' WHERE task IN ('parity', 'copied')")
        connection.execute("UPDATE run SET task = 'copying' WHERE task = 'copied'")
        for task in builtin:
            main = catalog.load("task", task).main_metric()
            connection.execute(
                "UPDATE run SET metric = ?, goal = ? WHERE task = ? AND metric <> 'balance'",
                (main.name, main.goal, task),
            )
    stamps = look(path, "SELECT key, updated_at FROM run ORDER BY key")
    with open_store(str(path)) as store:
        runs = store.runs()
    assert look(path, "SELECT key, updated_at FROM run ORDER BY key") == stamps
    foreign = [run for run in runs if run.metric == "balance"]
    assert [(run.task, run.main_metric.goal, list(run.metrics)) for run in foreign] == [
        ("parity", "max", ["balance"]),
        ("copying", "max", ["balance"]),
    ]
    own = [run for run in runs if run.metric != "balance"]
    assert {run.task for run in own} == set(builtin)
    for run in own:
        declared = catalog.load("task", run.task).metrics
        assert (run.main_metric.name, run.main_metric.goal) == (declared[0].name, declared[0].goal)
        stored = [run.declared(name) for name in run.metrics]
        assert [metric.axis for metric in stored] == [metric.axis for metric in declared]
        assert [(m.name, m.goal, m.is_fraction) for m in stored] == [(m.name, m.goal, m.is_fraction) for m in declared]


@pytest.mark.parametrize("revision", sorted(revision for revision in KEPT if revision < "0005"))
def test_old_runs_get_one_segment_with_their_environment(revision, old):
    path = old(revision)
    runs = look(path, "SELECT id, environment_id, backend, created_at FROM run ORDER BY id")
    with open_store(str(path)) as store:
        segments = store.segments([run_id for run_id, *_ in runs])
        assert [(row.run_id, row.iteration, row.environment_id, row.write_token) for row in segments] == [
            (run_id, 0, environment_id, None) for run_id, environment_id, *_ in runs
        ]
        assert [row.environment.facts for row in segments] == [run.environment.facts for run in store.runs()]
    stored = look(path, "SELECT run_id, environment_id, backend, started_at FROM segment ORDER BY run_id")
    assert stored == runs


@pytest.mark.parametrize("seed", range(2))
def test_an_upgrade_that_is_killed_has_not_happened(seed, old, tmp_path):
    """Killed at any line, the upgrade leaves a file that the old program can use and the new program can upgrade."""
    path = old("0001")
    assert call(tmp_path, ["db", "upgrade"], lines=tmp_path / "lines") == 0, (tmp_path / "output").read_text()
    stages = (tmp_path / "lines").read_text().split()
    done = dump(path)
    killed = 0
    for line in random.Random(seed).sample(range(len(stages)), 3):
        for leftover in tmp_path.glob("results.db*"):
            leftover.unlink()
        old("0001")
        killed += call(tmp_path, ["db", "upgrade"], Kill(line=line)) == -signal.SIGKILL
        assert look(path, "PRAGMA integrity_check") == [("ok",)]
        assert dump(path) in (dump(KEPT["0001"]), done)
        assert call(tmp_path, ["db", "upgrade"]) == 0, (tmp_path / "output").read_text()
        assert dump(path) == done
    assert killed == 3


def test_an_upgrade_over_several_schemas_is_one(old, monkeypatch):
    """A failure in the last step rolls the first steps back."""
    path = old("0001")

    def fail(*arguments, **options):
        raise SystemError("cut off")

    monkeypatch.setattr("orthobench.store.migrations.versions.v0002_benchmarks.op.create_index", fail)
    with pytest.raises(SystemError):
        open_store(str(path))
    assert dump(path) == dump(KEPT["0001"])


def test_without_room_for_the_copy_nothing_is_upgraded(old, monkeypatch):
    path = old("0001")

    class Full(sqlite3.Connection):
        def backup(self, *arguments, **options):
            error = sqlite3.OperationalError("database or disk is full")
            error.sqlite_errorcode = sqlite3.SQLITE_FULL
            raise error

    connect = sqlite3.connect
    monkeypatch.setattr("sqlite3.connect", lambda *a, **k: connect(*a, **{"factory": Full, **k}))
    with pytest.raises(StorageError, match=r"backup-0001 cannot be written: the disk is full: make room there"):
        open_store(str(path))
    monkeypatch.undo()
    assert dump(path) == dump(KEPT["0001"])
    assert not list(path.parent.glob("*backup*"))


def test_a_copy_is_of_one_moment_while_runs_write(tmp_path):
    """Each transaction writes a row and its number into the run: in every copy the two agree."""
    path, stop = tmp_path / "r.db", threading.Event()
    with open_store(str(path), create=True) as store:
        run = store.start(make_run_record(), "e", {})

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
