"""A list of many runs costs a fixed number of statements, and reads no column that it does not show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy import Engine, event, insert
from sqlalchemy.orm.exc import DetachedInstanceError
from support.records import run_record

from orthobench.store import open_store
from orthobench.store.tables import Run, Tag

MANY = 1_201  # SQLAlchemy's loaders read 500 related rows at a time


@pytest.fixture
def database(tmp_path) -> str:
    """A database with three runs; `enlarge` adds others."""
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        for seed in range(3):
            store.start(run_record(seed=seed), {"cpu": "x"}, tags=["old", "a"][: seed % 3])
    return str(tmp_path / "r.db")


def enlarge(database: str) -> None:
    with open_store(database) as store, store.engine.begin() as connection:
        columns = {"environment_id": 1, "status": "finished", "seconds": {}, "iterations": 10, "final_value": 0.5}
        records = [run_record(seed=3 + i) | columns for i in range(MANY)]
        connection.execute(insert(Run), records)
        connection.execute(insert(Tag), [{"run_id": i, "name": "new"} for i in range(4, MANY + 4, 3)])


@contextmanager
def statements() -> Iterator[list[str]]:
    """All statements of this process inside the block, without the beginnings of transactions."""
    seen: list[str] = []

    def record(connection, cursor, statement, *others) -> None:
        if statement != "BEGIN":
            seen.append(statement)

    event.listen(Engine, "before_cursor_execute", record)
    try:
        yield seen
    finally:
        event.remove(Engine, "before_cursor_execute", record)


def test_runs_are_read_by_four_statements(database):
    enlarge(database)
    with open_store(database) as store:
        with statements() as seen:
            runs = store.runs()
        assert len(runs) == MANY + 3
        assert len(seen) == 4  # the runs, their tags, their segments, their environments
        assert {run.environment.facts["cpu"] for run in runs} == {"x"}
        assert [run.tags for run in runs[:5]] == [[], ["old"], ["a", "old"], ["new"], []]
        assert [run.tags for run in store.runs(tag="new", seed=3)] == [["new"]]
        assert len(store.runs(tag="new")) == 401


def test_list_reads_only_the_shown_columns(database):
    with open_store(database) as store:
        with statements() as seen:
            run = store.runs(brief=True)[1]
        assert (run.tags, run.spec["model"], run.epochs) == (["old"], "rnn", 0)
        assert len(seen) == 2
        assert not any(column in seen[0] for column in ("baselines", "seconds", "metrics", "facts"))
        for name in ("baselines", "seconds", "metrics", "environment"):
            with pytest.raises(DetachedInstanceError):
                getattr(run, name)


def test_ls_takes_the_same_number_of_statements_for_many_runs(orthobench, database):
    with statements() as few:
        assert len(orthobench("ls", "--db", database).out.splitlines()) == 4
    enlarge(database)
    with statements() as many:
        listed = orthobench("ls", "--db", database, "--where", "seed=0,1,2,3,1200").out.splitlines()
    assert len(listed) == 1 + 5
    assert sorted(many) == sorted(few)
    assert not any("environment.facts" in statement for statement in many)
