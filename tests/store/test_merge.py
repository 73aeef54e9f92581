"""Merges of databases: each run once, with the most progress; all rows or none."""

from __future__ import annotations

import math
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from support.records import key_of, run_record
from support.schemas import add_revision, write_older

from orthobench.errors import DamagedError, UsageError
from orthobench.store import MetricRow, Status, Store, TraceRow, open_store
from orthobench.store.merge import merge, opened_unchanged
from orthobench.store.tables import Base


@pytest.fixture
def databases(tmp_path):
    with (
        open_store(str(tmp_path / "here.db"), create=True) as target,
        open_store(f"sqlite:///{tmp_path / 'there.db'}", create=True) as source,
    ):
        yield target, source


SEEDS = {key_of(seed): seed for seed in range(5)}
A_KEY, B_KEY, C_KEY, D_KEY, K_KEY = sorted(SEEDS)  # because a merge goes by the order of the keys


def enter(store: Store, key: str, values: list[float], status: Status = Status.FINISHED, machine: str = "m") -> None:
    run = store.start(run_record(seed=SEEDS[key]), {"cpu": machine})
    rows = [MetricRow("test", "x", i, i, value) for i, value in enumerate(values)]
    vectors = [TraceRow("g", i, i, [value, 0.1]) for i, value in enumerate(values)]
    store.log(run.id, rows, vectors, {"status": status, "iterations": len(values) - 1})


def contents(store: Store) -> dict:
    """Return the status, machine, spec and measured rows by key; values are text, so that nan equals nan."""
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


def test_every_run_of_both_is_kept_once(databases, tmp_path):
    target, source = databases
    enter(target, A_KEY, [1.0], machine="one")
    enter(target, B_KEY, [2.0, 1.5], machine="one")
    enter(source, C_KEY, [math.nan, math.inf, 0.1 + 0.2], Status.DIVERGED, machine="other")
    enter(source, B_KEY, [2.0, 1.5], machine="other")
    enter(source, D_KEY, [4.0], machine="one")
    target.tag([B_KEY], ["mine", "both"])
    source.tag([B_KEY, D_KEY], ["both", "theirs"])
    source.add_benchmark("bench", {"seconds": 0.1}, {"cpu": "other"})
    expected = contents(target) | {key: value for key, value in contents(source).items() if key in (C_KEY, D_KEY)}
    merged = merge(source, target)
    assert contents(target) == expected
    assert (merged.added, merged.replaced, merged.unchanged) == ([C_KEY, D_KEY], [], [B_KEY])
    assert merged.rows == {
        "environment": 1,
        "benchmark": 1,
        "segment": 0,
        "series": 0,
        "metric": 4,
        "trace": 4,
        "tag": 3,
        "source": 0,
        "weights": 0,
    }
    assert [target.get(key).tags for key in (B_KEY, D_KEY)] == [["both", "mine", "theirs"], ["both", "theirs"]]
    assert [benchmark.environment.facts for benchmark in target.benchmarks()] == [{"cpu": "other"}]
    before = dump(tmp_path / "here.db")
    again = merge(source, target)
    assert (again.added, again.replaced, again.unchanged) == ([], [], [C_KEY, B_KEY, D_KEY])
    assert set(again.rows.values()) == {0}
    assert dump(tmp_path / "here.db") == before


@pytest.mark.parametrize(
    ("target_state", "source_state", "is_replaced"),
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
def test_more_advanced_of_two_equal_runs_is_kept(databases, target_state, source_state, is_replaced):
    target, source = databases
    for store, (status, count), machine in ((target, target_state, "ours"), (source, source_state, "theirs")):
        enter(store, K_KEY, [float(len(machine) + i) for i in range(count)], status, machine)
    expected = contents(source if is_replaced else target)[K_KEY]
    if is_replaced and source_state[0] == Status.RUNNING:
        expected = (Status.INTERRUPTED, *expected[1:])
    merged = merge(source, target)
    assert (merged.replaced, merged.unchanged) == (([K_KEY], []) if is_replaced else ([], [K_KEY]))
    assert contents(target)[K_KEY] == expected


def test_segments_follow_their_run(databases):
    """The environments have other numbers in the target, and both databases had begun the run."""
    target, source = databases
    enter(target, A_KEY, [1.0], machine="one")
    enter(target, K_KEY, [1.0], Status.INTERRUPTED, machine="one")
    target.rewind(target.get(K_KEY).id, -1, "lost")
    for first, machine in ((-1, "two"), (3, "three")):
        enter(source, K_KEY, [], Status.FINISHED, machine=machine)
        source.rewind(source.get(K_KEY).id, first, machine)
        source.log(source.get(K_KEY).id, [], [], {}, f"kernels of {machine}")
    assert merge(source, target).rows["segment"] == 2
    segments = target.segments([target.get(K_KEY).id])
    assert [(row.iteration, row.write_token, row.backend, row.environment.facts) for row in segments] == [
        (0, "two", "kernels of two", {"cpu": "two"}),
        (3, "three", "kernels of three", {"cpu": "three"}),
    ]
    assert merge(source, target).rows["segment"] == 0


def test_abandoned_run_is_not_listed_as_running(databases):
    target, source = databases
    enter(source, K_KEY, [1.0], Status.RUNNING)
    merge(source, target)
    assert target.get(K_KEY).status == Status.INTERRUPTED


def test_run_in_training_here_is_left_alone(databases):
    target, source = databases
    enter(target, K_KEY, [1.0], Status.RUNNING)
    enter(source, K_KEY, [1.0, 2.0])
    before = contents(target)
    assert merge(source, target, lambda key: key == K_KEY).unchanged == [K_KEY]
    assert contents(target) == before


def test_failing_merge_changes_nothing(databases, tmp_path):
    target, source = databases
    enter(target, K_KEY, [1.0], Status.FAILED)
    enter(source, A_KEY, [1.0], machine="other")
    enter(source, K_KEY, [1.0, 2.0])
    before = dump(tmp_path / "here.db")

    def fail(key: str) -> bool:
        raise SystemError("cut off")

    with pytest.raises(SystemError):
        merge(source, target, fail)
    assert dump(tmp_path / "here.db") == before
    assert merge(source, target).added == [A_KEY]


def test_tags_and_related_rows_of_a_run_are_united(databases):
    """A table that refers to a run but has no iteration: a later schema may add such a table."""
    target, source = databases
    table = sa.Table(
        "remark",
        Base.metadata,
        sa.Column("run_id", sa.ForeignKey("run.id", ondelete="CASCADE"), primary_key=True),
        sa.Column("words", sa.String, primary_key=True),
    )
    try:
        for store, remarks, status in ((target, "xy", Status.FAILED), (source, "yz", Status.FINISHED)):
            table.create(store.engine)
            enter(store, A_KEY if store is target else B_KEY, [1.0], status)
            enter(store, K_KEY, [1.0], status)
            with store.engine.execution_options(writes=True).begin() as connection:
                rows = [{"run_id": store.get(K_KEY).id, "words": words} for words in remarks]
                connection.execute(sa.insert(table), rows)
        assert merge(source, target).rows["remark"] == 1
        assert merge(source, target).rows["remark"] == 0
        with target.engine.connect() as connection:
            remark_rows = connection.execute(sa.select(table).order_by(table.c.words)).all()
        assert remark_rows == [(target.get(K_KEY).id, words) for words in "xyz"]
        assert target.get(K_KEY).status == Status.FINISHED
    finally:
        Base.metadata.remove(table)


def test_older_database_is_read_through_a_copy(tmp_path, monkeypatch):
    old = tmp_path / "old.db"
    write_older(old)
    before = old.read_bytes()
    add_revision(tmp_path, monkeypatch.setattr)
    with opened_unchanged(str(old)) as source, open_store(str(tmp_path / "new.db"), create=True) as target:
        merged = merge(source, target)
    assert len(merged.added) == 1
    assert (merged.rows["series"], merged.rows["metric"], merged.rows["trace"]) == (3, 33, 2)
    assert old.read_bytes() == before
    assert {path.name for path in tmp_path.glob("old.db*")} == {"old.db"}


def test_the_damaged_one_of_two_databases_is_named(databases, tmp_path):
    target, source = databases
    enter(target, A_KEY, [1.0])
    enter(source, B_KEY, [1.0])
    for file in ("here.db", "there.db"):
        with closing(sqlite3.connect(tmp_path / file)) as connection, connection:
            connection.execute("UPDATE environment SET facts = '7'")
        with pytest.raises(DamagedError, match=rf"{file} is damaged: 7 is not a JSON object"):
            merge(source, target)
        with closing(sqlite3.connect(tmp_path / file)) as connection, connection:
            connection.execute("UPDATE environment SET facts = '{}'")


def test_newer_database_is_refused(tmp_path):
    path = tmp_path / "r.db"
    open_store(str(path), create=True).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE orthobench_version SET version_num = '9999'")
        connection.commit()
    with pytest.raises(UsageError, match="newer orthobench"), opened_unchanged(str(path)):
        pass
