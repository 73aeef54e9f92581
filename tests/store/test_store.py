from __future__ import annotations

import math
import os
import sqlite3
import threading
from contextlib import closing
from datetime import datetime
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from support.records import key_of, run_record
from support.schemas import OLDER, add_revision, write_older

from orthobench.errors import OrthobenchError, RunLockedError, UsageError
from orthobench.store import MetricRow, Status, Store, TraceRow, open_store
from orthobench.store import open as open_module
from orthobench.store.backup import back_up
from orthobench.store.open import HEAD
from orthobench.store.tables import VERSION_TABLE, Base


@pytest.fixture
def store(tmp_path: Path):
    with open_store(str(tmp_path / "r.db"), create=True) as opened:
        yield opened


def start(store: Store, **changes):
    return store.start(run_record(**changes), {"cpu": "x"})


def test_migrations_create_the_tables(store):
    with store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert context.get_current_revision() == HEAD
        assert compare_metadata(context, Base.metadata) == []
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA foreign_keys").scalar() == 1


def test_run_is_read_back_as_stored(store):
    entered = start(store)
    run = store.get(key_of(0))
    assert run.id == entered.id
    record = run_record()
    assert {name: getattr(run, name) for name in record} == record
    assert (run.status, run.environment.facts) == (Status.RUNNING, {"cpu": "x"})
    assert start(store).id == run.id


def test_environments_are_shared(store):
    run, other_run = start(store), start(store, seed=1)
    assert run.environment_id == other_run.environment_id


def test_non_finite_numbers_are_stored(store):
    run = start(store)
    values = [0.1, math.nan, math.inf, -math.inf]
    store.log(run.id, [MetricRow("test", "mse", 0, i, v) for i, v in enumerate(values)], [], {"iterations": 3})
    stored = [metric.value for metric in store.metrics([run.id])]
    assert stored[0] == 0.1
    assert math.isnan(stored[1])
    assert stored[2:] == [math.inf, -math.inf]
    store.log(run.id, [], [TraceRow("g", 0, 0, [1.0, math.inf])], {})
    assert next(each.values for each in store.traces([run.id]) if each.name == "g") == [1.0, math.inf]


def test_number_is_logged_once(store):
    run = start(store)
    rows = [MetricRow("test", "mse", 0, 0, 1.0)]
    store.log(run.id, rows, [], {})
    with pytest.raises(Exception, match="UNIQUE"):
        store.log(run.id, [MetricRow("test", "other", 0, 0, 1.0), *rows], [], {"iterations": 9})
    assert len(store.metrics([run.id])) == 1  # the failed transaction left nothing
    assert store.get(key_of(0)).iterations == 0


def test_rewind_removes_later_rows(store):
    run = start(store)
    rows = [MetricRow("test", "mse", 0, i, 1.0) for i in range(5)]
    store.log(run.id, rows, [TraceRow("g", 0, i, [1.0]) for i in range(5)], {})
    store.rewind(run.id, 2, "t")
    assert [metric.iteration for metric in store.metrics([run.id])] == [0, 1, 2]
    assert [trace.iteration for trace in store.traces([run.id])] == [0, 1, 2]
    store.delete(run.id)
    assert store.metrics([run.id]) == []
    assert store.runs() == []


def test_rewind_begins_a_segment_and_removes_later_ones(store):
    run = start(store)
    store.rewind(run.id, -1, "a")
    store.log(run.id, [], [], {}, "cpu")
    store.start(run_record(), {"cpu": "y"})
    for token in ("b", "c"):  # "b" got no further
        store.rewind(run.id, 4, token)
    store.log(run.id, [], [], {"iterations": 6}, "reference")
    store.update(run.id, {"message": "the back ends stay"})

    def segments() -> list[tuple]:
        rows = store.segments([run.id])
        return [(row.iteration, row.write_token, row.backend, row.environment.facts["cpu"]) for row in rows]

    assert segments() == [(0, "a", "cpu", "x"), (4, "c", "reference", "y")]
    store.rewind(run.id, 3, "d")
    assert segments() == [(0, "a", "cpu", "x"), (3, "d", None, "y")]
    store.rewind(run.id, -1, "e")
    assert segments() == [(0, "e", None, "y")]
    store.delete(run.id)
    assert segments() == []


def test_fork_has_the_rows_and_segments_of_its_iteration(store):
    """The segment of iteration 8 computed the rows after it, of which the fork at iteration 8 has none."""
    run = start(store)
    for iteration, token in ((-1, "a"), (4, "b"), (8, "c")):
        store.rewind(run.id, iteration, token)
    store.log(run.id, [MetricRow("test", "mse", 0, iteration, 1.0) for iteration in (0, 4, 8, 12)], [], {})
    longer = run_record(seed=1)
    store.fork(run.id, longer, logged=8, iteration=8)
    fork = store.get(longer["key"])
    assert [metric.iteration for metric in store.metrics([fork.id])] == [0, 4, 8]
    assert [(segment.iteration, segment.write_token) for segment in store.segments([fork.id])] == [(0, "a"), (4, "b")]


class StandingClock(datetime):
    @classmethod
    def now(cls, zone=None):
        return cls(2026, 1, 1, tzinfo=zone)


def test_writes_are_distinguished_while_the_clock_stands_still(store, monkeypatch):
    monkeypatch.setattr("orthobench.store.tables.datetime", StandingClock)
    run = start(store)
    for iteration in range(3):
        store.log(run.id, [MetricRow("test", "mse", 0, iteration, 1.0)], [], {"iterations": iteration})
    assert [row.iteration for row in store.metrics([run.id])] == [0, 1, 2]
    assert store.get(key_of(0)).iterations == 2
    for seconds in (1, 2):
        store.add_benchmark("recurrence", {"seconds": seconds}, {"cpu": "x"})
    assert [row.results["seconds"] for row in store.benchmarks()] == [1, 2]


def test_run_taken_over_at_the_same_time_is_left_to_the_other_process(store, tmp_path, monkeypatch):
    monkeypatch.setattr("orthobench.store.tables.datetime", StandingClock)
    run = start(store)
    with open_store(str(tmp_path / "r.db")) as other:
        start(other)
        with pytest.raises(RunLockedError, match="taken over"):
            store.update(run.id, {"status": Status.FAILED})
    assert store.get(key_of(0)).status == Status.RUNNING


def test_every_commit_reaches_the_disk(store):
    with store.engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2  # FULL


def test_runs_are_filtered(store):
    first, second = start(store), start(store, model="lstm", seed=1)
    assert [run.key for run in store.runs(model="lstm")] == [second.key]
    assert [run.key for run in store.runs(task="adding", seed=0)] == [first.key]
    assert store.runs(status="finished") == []
    with pytest.raises(UsageError, match="several"):
        store.get("")
    with pytest.raises(UsageError, match="no run"):
        store.get("%")


def test_tags_are_added_and_belong_to_one_run(store):
    assert store.start(run_record(), {}, ["night", "a"]).tags == ["a", "night"]
    start(store, seed=1)
    store.tag([key_of(0), key_of(1), "nowhere"], ["night", "b"])
    store.tag([key_of(0)], [])
    assert [run.tags for run in store.runs()] == [["a", "b", "night"], ["b", "night"]]
    assert start(store).tags == ["a", "b", "night"]  # a restart keeps them
    assert [run.key for run in store.runs(tag="a")] == [key_of(0)]
    assert store.runs(tag="n%") == []
    store.delete(store.get(key_of(0)).id)
    assert start(store).tags == []


def test_benchmark_is_read_back(store):
    run = start(store)
    results = {"shapes": [{"shape": "a", "seconds": 0.5, "ratio": None}]}
    added = store.add_benchmark("recurrence", results, {"cpu": "x"})
    store.add_benchmark("constraints", {}, {"cpu": "y"})
    (benchmark,) = store.benchmarks("recurrence")
    assert (benchmark.id, benchmark.results, benchmark.environment.facts) == (added.id, results, {"cpu": "x"})
    assert benchmark.environment_id == run.environment_id
    assert [row.name for row in store.benchmarks()] == ["recurrence", "constraints"]


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_backup_includes_rows_still_in_the_log(tmp_path, monkeypatch):
    """Another process may have committed rows that SQLite has not moved into the file itself yet."""
    path = tmp_path / "r.db"
    write_older(path)
    add_revision(tmp_path, monkeypatch.setattr)
    with closing(sqlite3.connect(path)) as other:
        other.execute("PRAGMA wal_autocheckpoint = 0")
        other.execute("PRAGMA journal_mode = WAL")
        other.execute("UPDATE run SET message = 'in the log'")
        other.commit()
        with open_store(str(path)) as store:
            assert store.runs()[0].message == "in the log"
    with closing(sqlite3.connect(tmp_path / f"r.db.backup-{OLDER}")) as backup:
        assert backup.execute("SELECT message FROM run").fetchall() == [("in the log",)]


def test_writers_wait_for_each_other(tmp_path):
    """Four threads, each with a connection of its own, lose no row and see no lock."""
    path = str(tmp_path / "r.db")
    errors: list[Exception] = []

    def write(number: int) -> None:
        try:
            with open_store(path, create=True) as store:
                run = start(store, seed=number)
                for i in range(25):
                    store.log(run.id, [MetricRow("test", "mse", 0, i, 1.0)], [], {"iterations": i})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_store(path) as store:
        assert len(store.metrics([run.id for run in store.runs()])) == 100


def _sqlite(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    for statement in statements:
        connection.execute(statement)
    connection.commit()
    connection.close()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda path: path.write_bytes(b"not a database at all"), "is not a database"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"x" * 2000), "is not a database"),
        (lambda path: path.mkdir(), "is a folder"),
        (lambda path: None, "there is no database"),
        (lambda path: _sqlite(path, "CREATE TABLE other (a)"), "holds no orthobench runs"),
        (
            lambda path: _sqlite(
                path, f"CREATE TABLE {VERSION_TABLE} (version_num)", f"INSERT INTO {VERSION_TABLE} VALUES ('9999')"
            ),
            "newer orthobench",
        ),
    ],
)
def test_unreadable_file_is_one_line(tmp_path, make, message):
    path = tmp_path / "r.db"
    make(path)
    before = path.read_bytes() if path.is_file() else None
    with pytest.raises(OrthobenchError, match=message) as error:
        open_store(str(path))
    assert "\n" not in str(error.value)
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize(
    ("location", "message"),
    [
        ("nowhere/r.db", "there is no folder nowhere"),
        ("strange://host/db", "is not a database: give a file, or a URL"),
        ("sqlite+pysqlcipher:///x", "needs a driver that is not installed"),
    ],
)
def test_invalid_location_is_refused(tmp_path, monkeypatch, location, message):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=message):
        open_store(location, create=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("read_only", [False, True])
def test_database_name_may_not_be_utf_8(tmp_path, monkeypatch, read_only):
    """Such as one with an umlaut, where the locale is C and Python's mode for UTF-8 is off."""
    path = os.fsdecode(os.fsencode(tmp_path) + b"/caf\xe9 %41?.db")
    with open_store(path, create=True) as store:
        start(store)
    back_up(Path(path), Path(f"{path}.copy"))
    monkeypatch.setattr(open_module, "is_read_only", lambda file: read_only)
    for name in (path, f"{path}.copy"):
        with open_store(name) as store:
            assert [run.key for run in store.runs()] == [key_of(0)]
            assert str(store.location) == name


def test_sqlalchemy_url_is_accepted(tmp_path):
    with open_store(f"sqlite:///{tmp_path / 'u.db'}", create=True) as store:
        start(store)
    with open_store(str(tmp_path / "u.db")) as store:
        assert len(store.runs()) == 1
