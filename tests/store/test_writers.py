"""Sixteen processes log to one file: no process sees a lock error, and no row is lost."""

from __future__ import annotations

import time
from multiprocessing.queues import SimpleQueue
from pathlib import Path

import pytest
from sqlalchemy import func, select
from support.crash import FORKS
from support.records import run_record

from orthobench.store import MetricRow, Status, TraceRow, open_store
from orthobench.store.tables import StoredMetric

WRITERS, READERS = 16, 2


def write(path: Path, number: int, rows: int, seconds: float, results: SimpleQueue) -> None:
    """Log rows until enough and long enough; the number of rows, or what went wrong."""
    try:
        done, end = 0, time.monotonic() + seconds
        with open_store(str(path), create=True) as store:
            run = store.start(run_record(seed=number), {"cpu": "x"})
            while done < rows or time.monotonic() < end:
                metrics = [MetricRow("test", f"m{i}", 0, done, 1.0) for i in range(5)]
                store.log(run.id, metrics, [TraceRow("g", 0, done, [1.0] * 50)], {"iterations": done})
                done += 1
            store.update(run.id, {"status": Status.FINISHED})
        results.put((number, done))
    except BaseException as error:
        results.put((number, repr(error)))


def read(path: Path, number: int, results: SimpleQueue) -> None:
    """List the runs, as `ls` does, until all are finished; each time there must be no fewer rows."""
    try:
        looks, before, finished = 0, 0, 0
        while finished < WRITERS:
            with open_store(str(path), create=True) as store:
                finished = sum(run.status == Status.FINISHED for run in store.runs())
                with store.engine.connect() as connection:
                    rows = connection.scalar(select(func.count()).select_from(StoredMetric)) or 0
            assert rows >= before
            looks, before = looks + 1, rows
        results.put((number, looks))
    except BaseException as error:
        results.put((number, repr(error)))


def carry_out(path: Path, rows: int, seconds: float) -> None:
    results = FORKS.SimpleQueue()
    processes = [FORKS.Process(target=write, args=(path, i, rows, seconds, results)) for i in range(WRITERS)]
    processes += [FORKS.Process(target=read, args=(path, -1 - i, results)) for i in range(READERS)]
    for process in processes:
        process.start()
    counts = dict(results.get() for _ in processes)
    for process in processes:
        process.join()
    assert [error for error in counts.values() if isinstance(error, str)] == []
    with open_store(str(path)) as store:
        runs = {run.seed: run for run in store.runs()}
        assert runs.keys() == set(range(WRITERS))
        for number, run in runs.items():
            assert (run.status, run.iterations) == (Status.FINISHED, counts[number] - 1)
            iterations = [row.iteration for row in store.metrics([run.id], name="m4")]
            assert iterations == list(range(counts[number]))
            assert len(store.metrics([run.id])) == 5 * counts[number]
            assert len(store.traces([run.id])) == counts[number]
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"


@pytest.mark.slow
def test_sixteen_writers_lose_nothing(tmp_path):
    carry_out(tmp_path / "r.db", rows=15, seconds=0)


@pytest.mark.slow
def test_sixteen_writers_lose_nothing_for_a_minute(tmp_path):
    carry_out(tmp_path / "r.db", rows=25, seconds=60)


def test_busy_database_is_waited_for_with_a_message(tmp_path, monkeypatch, caplog):
    """A writer still waits after SQLite's own timeout of a minute."""
    monkeypatch.setattr("orthobench.store.sqlite.BUSY_TIMEOUT_MS", 5)
    path = str(tmp_path / "r.db")
    with open_store(path, create=True) as store, open_store(path) as other:
        run = store.start(run_record(), {})
        with store.engine.execution_options(writes=True).begin() as transaction:
            release = monkeypatch.undo, transaction.rollback

            def release_lock(record) -> bool:
                for undo in release:
                    undo()
                return True

            caplog.handler.addFilter(release_lock)
            other.update(run.id, {"message": "written"})
            caplog.handler.removeFilter(release_lock)
        assert store.get(run.key).message == "written"
    assert caplog.messages == [f"database {path} is locked by other processes: waiting for them"]
