"""The store on a PostgreSQL server: all that a file does, and what happens when the server goes away."""

from __future__ import annotations

import json
import logging
import math
import threading
from pathlib import Path

import pytest
from sqlalchemy import text
from support.records import key_of, run_record

from orthobench.errors import RunLockedError, StorageError
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, TraceRow, open_store
from orthobench.store import open as open_module
from orthobench.store import server as server_module
from orthobench.store.open import HEAD, DatabaseNotFoundError
from orthobench.store.tables import VERSION_TABLE, Base
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train

pytestmark = pytest.mark.postgresql

KEYS = [key_of(seed) for seed in range(16)]


def start(store, **changes):
    return store.start(run_record(**changes), {"cpu": "x"})


def point(iteration: int, value: float = 1.0) -> MetricRow:
    return MetricRow("test", "mse", 0, iteration, value)


@pytest.fixture
def store(postgres):
    with open_store(postgres, create=True) as opened:
        yield opened


@pytest.fixture
def quick(monkeypatch):
    """Limit the wait for an unreachable server to half a second."""
    monkeypatch.setattr(server_module, "PATIENCE", 0.5)


def test_migrations_create_the_tables(postgres):
    from alembic.autogenerate import compare_metadata
    from alembic.runtime.migration import MigrationContext

    with pytest.raises(DatabaseNotFoundError, match="holds no orthobench runs"):
        open_store(postgres)
    with open_store(postgres, create=True) as store, store.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True, "version_table": VERSION_TABLE})
        assert compare_metadata(context, Base.metadata) == []
        assert connection.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar_one() == HEAD


def test_snapshot_sees_one_state(store):
    store.log(start(store).id, [point(0)], [], {})
    counted = text("SELECT count(*) FROM metric")
    with store.snapshot() as session:
        assert session.execute(counted).scalar_one() == 1
        store.log(start(store, seed=1).id, [point(0)], [], {})
        assert session.execute(counted).scalar_one() == 1
    with store.snapshot() as session:
        assert session.execute(counted).scalar_one() == 2


def test_processes_creating_the_same_database_at_once_create_one(postgres):
    errors: list[Exception] = []

    def make() -> None:
        try:
            open_store(postgres, create=True).close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=make) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_store(postgres) as store:
        assert store.runs() == []


def test_stored_rows_are_read_back(store):
    run = start(store)
    spec = run.spec
    assert spec["note"] == ["ü", None, 0.1]
    values = [0.1, math.nan, math.inf, -math.inf]
    store.log(run.id, [point(i, v) for i, v in enumerate(values)], [TraceRow("g", 0, 0, [0.5, math.inf])], {})
    store.update(run.id, {"peak_memory": 2**40})
    stored = [row.value for row in store.metrics([run.id])]
    assert stored[0] == 0.1
    assert math.isnan(stored[1])
    assert stored[2:] == [math.inf, -math.inf]
    assert list(store.traces([run.id])[0].values) == [0.5, math.inf]
    again = store.get(KEYS[0])
    assert (again.peak_memory, again.spec, again.environment.facts) == (2**40, spec, {"cpu": "x"})
    store.rewind(run.id, 1, "t")
    assert [row.iteration for row in store.metrics([run.id])] == [0, 1]
    store.delete(run.id)
    assert store.runs() == []
    assert store.metrics([run.id]) == []


def test_writers_in_one_environment_lose_nothing(postgres):
    """All enter the same environment, each its own run, at the same moment."""
    errors: list[Exception] = []
    ready = threading.Barrier(6)
    open_store(postgres, create=True).close()

    def write(number: int) -> None:
        try:
            with open_store(postgres) as store:
                ready.wait()
                run = start(store, seed=number)
                ready.wait()
                store.tag(KEYS[:6], ["together"])
                for i in range(25):
                    store.log(run.id, [point(i)], [], {"iterations": i})
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with open_store(postgres) as store:
        runs = store.runs()
        assert {run.environment_id for run in runs} == {runs[0].environment_id}
        assert len(store.metrics([run.id for run in runs])) == 150
        assert all(run.tags == ["together"] for run in runs)


def test_run_is_held_by_one_process_on_any_machine(postgres, store):
    with open_store(postgres) as elsewhere, store.server.lock("run a"):
        assert elsewhere.server.is_locked("run a")
        assert not elsewhere.server.is_locked("run b")
        with pytest.raises(RunLockedError, match="another process"), elsewhere.server.lock("run a"):
            pass
        with elsewhere.server.lock("run b"):
            pass
    assert not store.server.is_locked("run a")


def test_run_in_training_is_busy_elsewhere(postgres, store, tmp_path, tiny):
    config = resolve(Catalog(), "adding", "rnn", tiny)
    key = config.spec.key
    with open_store(postgres) as elsewhere, elsewhere.server.lock(f"run {key}"), pytest.raises(RunLockedError):
        train(config, store, RunOptions(device="cpu", checkpoints=str(tmp_path)))
    assert store.runs() == []


def test_process_that_lost_its_run_writes_nothing_more(postgres, store):
    run = start(store)
    store.log(run.id, [point(0)], [], {})
    with open_store(postgres) as elsewhere:
        start(elsewhere)
        elsewhere.log(run.id, [point(1)], [], {})
        for late in (
            lambda: store.log(run.id, [point(2)], [], {}),
            lambda: store.update(run.id, {"status": Status.FAILED}),
            lambda: store.rewind(run.id, -1, "t"),
        ):
            with pytest.raises(RunLockedError, match="taken over"):
                late()
        elsewhere.log(run.id, [point(2)], [], {})
        assert [row.iteration for row in elsewhere.metrics([run.id])] == [0, 1, 2]
        assert elsewhere.get(KEYS[0]).status == Status.RUNNING


def drop_connections(url: str) -> None:
    """What a network does that fails: every connection to the database is cut."""
    import psycopg

    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity"  # waits for their end
            " WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )


def test_interrupted_connections_are_reopened(postgres, store, caplog):
    run = start(store)
    with store.server.lock("run k0"):
        for iteration in range(3):
            drop_connections(postgres)
            store.log(run.id, [point(iteration)], [], {"iterations": iteration})
            assert len(store.metrics([run.id])) == iteration + 1
    assert store.get(KEYS[0]).iterations == 2


@pytest.mark.parametrize("when", ["before", "after"])
def test_transaction_with_unknown_outcome_is_applied_once(postgres, store, monkeypatch, when):
    """The connection is cut right before the commit, or right after it, when the client does not know of it yet."""
    run, engine = start(store), store.engine
    commit, cut = engine.dialect.do_commit, []

    def commit_and_lose(connection):
        if cut:
            return commit(connection)
        cut.append(when)
        if when == "after":
            commit(connection)
        drop_connections(postgres)
        return commit(connection) if when == "before" else connection.execute("SELECT 1")

    monkeypatch.setattr(engine.dialect, "do_commit", commit_and_lose)
    store.log(run.id, [point(0)], [TraceRow("g", 0, 0, [1.0])], {"iterations": 7})
    store.log(run.id, [point(1)], [], {})
    assert cut == [when]
    assert [row.iteration for row in store.metrics([run.id])] == [0, 1]
    assert len(store.traces([run.id])) == 1
    cut.clear()
    store.add_benchmark("b", {"x": 1}, {"cpu": "x"})
    assert cut == [when]
    assert len(store.benchmarks("b")) == 1


def test_lost_lock_is_acquired_again_before_any_write(postgres, store):
    run = start(store)
    with store.server.lock("run k0"), open_store(postgres) as elsewhere:
        drop_connections(postgres)
        store.log(run.id, [point(0)], [], {})
        assert elsewhere.server.is_locked("run k0")


def test_lost_lock_taken_by_another_ends_the_run(postgres, store):
    run = start(store)
    with store.server.lock("run k0"), open_store(postgres) as elsewhere:
        drop_connections(postgres)
        with elsewhere.server.lock("run k0"), pytest.raises(RunLockedError, match="another process"):
            store.log(run.id, [point(0)], [], {})
    assert store.metrics([run.id]) == []


def restart_after(server, seconds: float) -> threading.Thread:
    thread = threading.Timer(seconds, server.start)
    thread.start()
    return thread


def numbers(url: str, key: str):
    with open_store(url) as store:
        run = store.find(key)
        assert run is not None
        metrics = [(m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics([run.id])]
        traces = [(t.name, t.epoch, t.iteration, list(t.values)) for t in store.traces([run.id])]
        return run.status, run.iterations, run.final_value, run.best_value, metrics, traces


class StopsServer(EventSink):
    """Stops the server in the middle of a run; it may come back later."""

    def __init__(self, server, mode: str, back_after: float | None) -> None:
        self.server, self.mode, self.back_after, self.restart = server, mode, back_after, None

    def on_iteration(self, iteration):
        if iteration == 5:
            self.server.stop(self.mode)
            if self.back_after is not None:
                self.restart = restart_after(self.server, self.back_after)


def carry_out(url: str, config, folder: Path, observer, should_stop=lambda: False):
    with open_store(url, create=True) as store:
        options = RunOptions(
            device="cpu", checkpoints=None if url.startswith("sqlite") else str(folder), checkpoint_every=0
        )
        train(config, store, options, [observer], should_stop)
    return numbers(url, config.spec.key)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["immediate", "fast"])
def test_run_waits_for_a_stopped_server_that_comes_back(postgres, postgres_server, tmp_path, tiny, caplog, mode):
    caplog.set_level(logging.INFO)
    config = resolve(Catalog(), "adding", "scornn", tiny)
    uncut = carry_out(f"sqlite:///{tmp_path / 'uncut.db'}", config, tmp_path / "uncut", EventSink())
    stopping = StopsServer(postgres_server, mode, back_after=1.0)
    try:
        cut = carry_out(postgres, config, tmp_path / "c", stopping)
    finally:
        stopping.restart.join()
    assert cut == uncut
    waits = [record.message for record in caplog.records if "database server" in record.message]
    assert len(waits) == 2
    assert waits[0].startswith("waiting for the database server")
    assert waits[1] == "the database server is back"


@pytest.mark.slow
def test_run_whose_server_stays_away_stops_and_resumes_later(postgres, postgres_server, quick, tmp_path, tiny):
    config = resolve(Catalog(), "adding", "scornn", tiny)
    uncut = carry_out(f"sqlite:///{tmp_path / 'uncut.db'}", config, tmp_path / "uncut", EventSink())
    try:
        with pytest.raises(StorageError, match=r"the database server is lost \(.*\): start the same command again"):
            carry_out(postgres, config, tmp_path / "c", StopsServer(postgres_server, "immediate", None))
    finally:
        postgres_server.start()
    assert numbers(postgres, config.spec.key)[:2] == (Status.RUNNING, 4)
    assert carry_out(postgres, config, tmp_path / "c", EventSink()) == uncut


@pytest.mark.slow
def test_command_stops_with_one_line_and_resumes(
    postgres, postgres_server, quick, orthobench, tiny_options, monkeypatch
):
    command = ("run", "adding", "rnn", *tiny_options, "--db", postgres)
    with monkeypatch.context() as patched:
        stopping = StopsServer(postgres_server, "immediate", None)
        patched.setattr(
            "orthobench.display.progress.Progress.on_iteration", lambda _, iteration: stopping.on_iteration(iteration)
        )
        try:
            stopped = orthobench(*command)
        finally:
            postgres_server.start()
    assert stopped.code == 2
    assert [line for line in stopped.err.splitlines() if line.startswith("error:")] == [stopped.err.splitlines()[-1]]
    assert "the database server is lost" in stopped.err
    assert "interrupted" in orthobench("ls", "--db", postgres).out
    assert "finished" in orthobench(*command).out


@pytest.mark.slow
def test_stop_request_ends_the_waiting(postgres, postgres_server, tmp_path, tiny):
    """The patience is ten minutes: the test ends early because `stop_waiting` ends the wait."""
    config = resolve(Catalog(), "adding", "rnn", tiny)
    stopped = threading.Event()
    threading.Timer(1.0, stopped.set).start()
    try:
        with pytest.raises(StorageError, match="lost"):
            carry_out(
                postgres,
                config,
                tmp_path,
                StopsServer(postgres_server, "immediate", None),
                lambda: stopped.is_set(),
            )
    finally:
        postgres_server.start()


def test_unreachable_server_is_one_line_without_the_password(postgres_server, orthobench):
    done = orthobench("ls", "--db", f"postgresql://me:secret@/none?host={postgres_server.folder / 'nowhere'}")
    assert done.code == 2
    assert "cannot be opened" in done.err
    assert done.err.count("\n") == 1
    assert "secret" not in done.err


def test_server_lost_while_a_command_opens_its_database_is_waited_for(postgres, monkeypatch):
    """The connection is cut before the schema is read, and the server's next answer is that it starts."""
    open_store(postgres, create=True).close()
    looked, look = [], open_module._version

    def cut_first(connection):
        looked.append(len(looked))
        if len(looked) == 1:
            drop_connections(postgres)
        return look(connection)

    monkeypatch.setattr(open_module, "_version", cut_first)
    with open_store(postgres) as store:
        assert store.runs() == []
    assert len(looked) == 2


def test_known_server_that_does_not_answer_is_waited_for(postgres_server, quick):
    url = f"postgresql://me@/none?host={postgres_server.folder / 'nowhere'}"
    with pytest.raises(StorageError, match="the database server is lost"):
        open_store(url, stop_waiting=lambda: False)


def test_commands_work_on_a_server(postgres, orthobench, tiny_options):
    at = ("--db", postgres)
    sweep = ("sweep", "adding", "--models", "rnn,lstm", "--seeds", "2", *tiny_options, *at)
    assert "4 missing" in orthobench(*sweep, "--dry-run", "--no-profile").out
    assert orthobench(*sweep).code == 0
    assert "4 finished" in orthobench(*sweep, "--dry-run", "--no-profile").out
    assert "finished" in orthobench("run", "adding", "rnn", *tiny_options, "--force", *at).out
    listed = json.loads(orthobench("ls", "--json", *at).out)
    assert {run["status"] for run in listed} == {"finished"}
    assert len(listed) == 4
    shown = json.loads(orthobench("show", listed[0]["run"], "--json", *at).out)
    assert shown["final"] == listed[0]["final"]
    page = Path(orthobench("report", "--html", *at).out.strip())
    assert "lstm" in page.read_text("utf-8")
    assert orthobench("compare", "model=rnn", "model=lstm", *at).code in (0, 1)


BROKEN = {
    "status": ("UPDATE run SET status = 'finishee' WHERE id = 2", f"run {KEYS[1]}: 'finishee' is not a valid Status"),
    "spec": ("UPDATE run SET spec = '[]' WHERE id = 2", "[] is not a JSON object"),
    "word": ("UPDATE metric SET value = NULL, kind = 'many' WHERE id = 2", "'many' is not nan, inf or -inf"),
    "vector": ("UPDATE trace SET vectors = '\\x0102' WHERE id = 2", "its vectors cannot be read"),
    "environment": ("UPDATE environment SET facts = '7'", "7 is not a JSON object"),
}
"""Damage by its statement, and what is said about it."""


@pytest.mark.parametrize("fault", BROKEN)
def test_broken_row_is_refused_with_the_fix(postgres, orthobench, fault):
    statement, line = BROKEN[fault]
    with open_store(postgres, create=True) as store:
        for seed in range(3):
            store.log(start(store, seed=seed).id, [point(0)], [TraceRow("g", 0, 0, [0.5])], {})
        with store.engine.begin() as connection:
            connection.execute(text(statement))
    read = orthobench("db", "export", "out", "--vectors", "--db", postgres)
    info = orthobench("db", "info", "--db", postgres)
    merged = orthobench("merge", postgres, "--db", "merged.db")
    for done in (read, merged):
        assert (done.code, done.err.count("\n"), line in done.err) == (2, 1, True), done.err
        assert done.err.endswith("; correct or delete the row in SQL, or restore a backup\n")
    assert info.code in (1, 2)
    assert line in info.out + info.err
    assert not Path("merged.db").exists()
