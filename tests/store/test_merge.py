"""Joining databases: each run once, the one that got further; everything or nothing."""

from __future__ import annotations

import math
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.records import make_run_record

from orthobench.errors import UsageError
from orthobench.store import MetricRow, Status, Store, TraceRow, open_store
from orthobench.store.merge import merge, reading
from orthobench.store.tables import Base


@pytest.fixture
def databases(tmp_path):
    with (
        open_store(str(tmp_path / "here.db"), create=True) as here,
        open_store(f"sqlite:///{tmp_path / 'there.db'}", create=True) as there,
    ):
        yield here, there


def enter(store: Store, key: str, values: list[float], status: Status = Status.FINISHED, machine: str = "m") -> None:
    run = store.start(make_run_record(key=key), machine, {"cpu": machine})
    rows = [MetricRow("test", "x", i, i, value) for i, value in enumerate(values)]
    vectors = [TraceRow("g", i, i, [value, 0.1]) for i, value in enumerate(values)]
    store.log(run.id, rows, vectors, {"status": status, "iterations": len(values) - 1})


def contents(store: Store) -> dict:
    """By key: status, machine, and what was measured, as text: nan equals nan."""
    return {
        run.key: (
            run.status,
            run.environment.facts,
            run.spec,
            [(m.split, m.name, m.epoch, m.iteration, repr(m.value)) for m in store.metrics([run.id])],
            [(t.name, t.iteration, repr(list(t.values))) for t in store.traces([run.id])],
        )
        for run in store.runs()
    }


def dump(path: Path) -> list[str]:
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def test_all_runs_of_both_are_there_once(databases, tmp_path):
    here, there = databases
    enter(here, "a", [1.0], machine="one")
    enter(here, "b", [2.0, 1.5], machine="one")
    enter(there, "c", [math.nan, math.inf, 0.1 + 0.2], Status.DIVERGED, machine="other")
    enter(there, "b", [2.0, 1.5], machine="other")
    enter(there, "d", [4.0], machine="one")
    here.tag(["b"], ["mine", "both"])
    there.tag(["b", "d"], ["both", "theirs"])
    there.add_benchmark("bench", {"seconds": 0.1}, "other", {"cpu": "other"})
    both = contents(here) | {key: value for key, value in contents(there).items() if key in "cd"}
    merged = merge(there, here)
    assert contents(here) == both
    assert (merged.added, merged.replaced, merged.unchanged) == (["c", "d"], [], ["b"])
    assert merged.rows == {"environment": 1, "benchmark": 1, "metric": 4, "trace": 4, "tag": 3}
    assert [here.get(key).tags for key in "bd"] == [["both", "mine", "theirs"], ["both", "theirs"]]
    assert [one.environment.facts for one in here.benchmarks()] == [{"cpu": "other"}]
    before = dump(tmp_path / "here.db")
    again = merge(there, here)
    assert (again.added, again.replaced, again.unchanged) == ([], [], ["c", "b", "d"])
    assert set(again.rows.values()) == {0}
    assert dump(tmp_path / "here.db") == before


@pytest.mark.parametrize(
    ("ours", "theirs", "taken"),
    [
        ((Status.FINISHED, 3), (Status.FINISHED, 3), False),
        ((Status.FINISHED, 3), (Status.DIVERGED, 3), False),
        ((Status.FINISHED, 3), (Status.INTERRUPTED, 5), False),
        ((Status.DIVERGED, 3), (Status.FINISHED, 3), True),
        ((Status.DIVERGED, 3), (Status.DIVERGED, 4), False),
        ((Status.DIVERGED, 2), (Status.RUNNING, 3), False),
        ((Status.FAILED, 3), (Status.FINISHED, 3), True),
        ((Status.FAILED, 3), (Status.DIVERGED, 1), True),
        ((Status.RUNNING, 2), (Status.INTERRUPTED, 3), True),
        ((Status.INTERRUPTED, 3), (Status.FAILED, 3), False),
        ((Status.INTERRUPTED, 4), (Status.RUNNING, 3), False),
    ],
)
def test_of_two_the_one_that_got_further_is_kept(databases, ours, theirs, taken):
    here, there = databases
    for store, (status, count), machine in ((here, ours, "ours"), (there, theirs, "theirs")):
        enter(store, "k", [float(len(machine) + i) for i in range(count)], status, machine)
    expected = contents(there if taken else here)["k"]
    if taken and theirs[0] == Status.RUNNING:
        expected = (Status.INTERRUPTED, *expected[1:])
    merged = merge(there, here)
    assert (merged.replaced, merged.unchanged) == ((["k"], []) if taken else ([], ["k"]))
    assert contents(here)["k"] == expected


def test_a_run_that_nobody_here_is_at_does_not_say_running(databases):
    here, there = databases
    enter(there, "k", [1.0], Status.RUNNING)
    merge(there, here)
    assert here.get("k").status == Status.INTERRUPTED


def test_a_run_that_is_being_trained_here_is_left_alone(databases):
    here, there = databases
    enter(here, "k", [1.0], Status.RUNNING)
    enter(there, "k", [1.0, 2.0])
    before = contents(here)
    assert merge(there, here, lambda key: key == "k").unchanged == ["k"]
    assert contents(here) == before


def test_a_merge_that_fails_changes_nothing(databases, tmp_path):
    here, there = databases
    enter(here, "k", [1.0], Status.FAILED)
    enter(there, "a", [1.0], machine="other")
    enter(there, "k", [1.0, 2.0])
    before = dump(tmp_path / "here.db")

    def fail(key: str) -> bool:
        raise SystemError("cut off")

    with pytest.raises(SystemError):
        merge(there, here, fail)
    assert dump(tmp_path / "here.db") == before
    assert merge(there, here).added == ["a"]


def test_what_is_said_of_a_run_is_joined(databases):
    """A table that follows a run without an iteration, as one added in a later schema may be."""
    here, there = databases
    table = sa.Table(
        "remark",
        Base.metadata,
        sa.Column("run_id", sa.ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("words", sa.String, primary_key=True),
    )
    try:
        for store, remarks, status in ((here, "xy", Status.FAILED), (there, "yz", Status.FINISHED)):
            table.create(store.engine)
            enter(store, "first" if store is here else "second", [1.0], status)
            enter(store, "k", [1.0], status)
            with store.engine.execution_options(writes=True).begin() as connection:
                rows = [{"run_id": store.get("k").id, "words": words} for words in remarks]
                connection.execute(sa.insert(table), rows)
        assert merge(there, here).rows["remark"] == 1
        assert merge(there, here).rows["remark"] == 0
        with here.engine.connect() as connection:
            found = connection.execute(sa.select(table).order_by(table.c.words)).all()
        assert found == [(here.get("k").id, words) for words in "xyz"]
        assert here.get("k").status == Status.FINISHED
    finally:
        Base.metadata.remove(table)


def test_an_older_database_is_read_through_a_copy(databases, tmp_path):
    here, _ = databases
    old = tmp_path / "old.db"
    shutil.copy(Path(__file__).with_name("schema_0001.db"), old)
    before = old.read_bytes()
    with reading(str(old)) as source:
        merged = merge(source, here)
    assert len(merged.added) == 1
    assert merged.rows["metric"] == 5
    assert old.read_bytes() == before
    assert {path.name for path in tmp_path.glob("old.db*")} == {"old.db"}


def test_a_newer_database_is_refused(tmp_path):
    path = tmp_path / "r.db"
    open_store(str(path), create=True).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE orthobench_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(UsageError, match="newer orthobench"), reading(str(path)):
        pass
