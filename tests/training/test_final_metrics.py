"""What a task measures once, at the end of a run."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from safetensors.torch import load_file
from support.configs import with_classes

from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.tasks.adding import Adding
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted


class Concluding(Adding):
    """Reports three pieces of work, and counts its calls."""

    calls = 0

    def final_metrics(self, model, report):
        type(self).calls += 1
        assert not model.training
        for done in (1, 2, 3):
            report(done, 3)
        return {"at_the_end": 7.0}


class Failing(Concluding):
    def final_metrics(self, model, report):
        super().final_metrics(model, report)
        raise ValueError("cannot convert")


class Watching(EventSink):
    stop_at: int | None = None

    def __init__(self):
        self.seen, self.iterations = [], []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def on_final_metrics(self, done, total):
        self.seen.append((done, total))


@pytest.fixture
def run(tmp_path, tiny):
    resolved = resolve(Catalog(), "adding", "rnn", tiny)

    def carry_out(observer, should_stop=lambda: False, task=Concluding):
        config = with_classes(resolved, task_class=task)
        with open_store(str(tmp_path / "r.db"), create=True) as store:
            try:
                train(config, store, RunOptions(device="cpu"), [observer], should_stop)
            finally:
                record = store.find(config.spec.key)
                rows = [(m.iteration, m.value) for m in store.metrics([record.id]) if m.name == "at_the_end"]
            return record.status, rows

    return carry_out


def test_final_metrics_are_logged_once(run):
    observer = Watching()
    assert run(observer) == (Status.FINISHED, [(12, 7.0)])
    assert observer.seen == [(1, 3), (2, 3), (3, 3)]
    calls = Concluding.calls
    assert run(Watching()) == (Status.FINISHED, [(12, 7.0)])
    assert Concluding.calls == calls


def test_stop_in_the_final_metrics_loses_no_iteration(run):
    observer = Watching()
    with pytest.raises(Interrupted):
        run(observer, lambda: observer.seen == [(1, 3), (2, 3)])
    again = Watching()
    assert run(again) == (Status.FINISHED, [(12, 7.0)])
    assert again.iterations == []


def test_failure_costs_the_final_metrics_only(run, tmp_path, caplog):
    observer = Watching()
    assert run(observer, task=Failing) == (Status.FINISHED, [])
    problem = r"the final metrics failed: \S+:\d+ raises ValueError: cannot convert"
    assert re.search(problem, caplog.text)
    with open_store(str(tmp_path / "r.db")) as store:
        (record,) = store.runs()
        assert re.fullmatch(problem, record.message)
        assert record.final_value is not None
        assert max(row.iteration for row in store.metrics([record.id])) == 12
    calls = Concluding.calls
    assert run(Watching(), task=Failing) == (Status.FINISHED, [])
    assert Concluding.calls == calls


def test_exception_of_a_receiver_ends_the_run(run):
    """It is no failure of the metrics: a closed connection to a worker's parent, for example."""
    with pytest.raises(ConnectionResetError):
        run(Broken())


class Broken(Watching):
    def on_final_metrics(self, done, total):
        raise ConnectionResetError


PLUGIN = """
import os, pathlib, signal
from orthobench.tasks.adding import Adding as Base

class Dying(Base):
    metrics = (*Base.metrics, Base.metrics[0].__class__("end", "max"))

    def final_metrics(self, model, report):
        if not pathlib.Path("again").exists():
            pathlib.Path("again").touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return {"end": 7.0}
"""


def kept_tensors(folder):
    """Return the tensors of every kept file as lists."""
    files = folder.rglob("*.safetensors")
    return {file.name: {name: part.tolist() for name, part in load_file(file).items()} for file in files}


@pytest.mark.slow
def test_death_in_the_final_metrics_keeps_weights_and_iterations(tmp_path, tiny_options):
    (tmp_path / "dying.py").write_text(PLUGIN)
    words = ["run", "dying", "rnn", "--plugin", "dying.py", *tiny_options, "--keep-weights", "both", "--db", "r.db"]
    command = [sys.executable, "-m", "orthobench", *words]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    first = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert first.returncode == -signal.SIGKILL, first.stderr
    tensors = kept_tensors(tmp_path)
    assert {name.partition(".")[2] for name in tensors} == {"best.safetensors", "last.safetensors", "state.safetensors"}
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs()
        rows = [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]
    assert max(iteration for _, _, iteration, _ in rows) == 12
    second = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert second.returncode == 0, second.stderr
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs(status=Status.FINISHED)
        more = [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection:
        starts = connection.execute("SELECT iteration FROM segment ORDER BY iteration").fetchall()
    assert starts == [(0,), (12,)]
    assert sorted(more) == sorted([*rows, ("test", "end", 12, 7.0)])
    assert kept_tensors(tmp_path) == tensors
