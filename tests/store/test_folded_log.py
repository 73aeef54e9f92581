"""A copy of the database's file alone has every run that has ended, also while other programs have the file open."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import urllib.request
from contextlib import closing
from pathlib import Path

import pytest
from support.served import served

import orthobench as ob
from orthobench.display.display import Display, JobsDisplay
from orthobench.reporting.web import serve as serving
from orthobench.store import open_store
from orthobench.store.sqlite import log_size

SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 8}


class CopyingDisplay(Display, JobsDisplay):
    """Copies the file alone whenever a run has ended, and looks at it; `missing` has the runs that a copy lacks."""

    def __init__(self, file: Path, look) -> None:
        self.file, self.look = file, look
        self.ended: set[str] = set()
        self.missing: list[set[str]] = []

    def open_jobs(self, count, in_this_process):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *error):
        pass

    def on_outcome(self, outcome) -> None:
        self.ended.add(outcome.job.spec.key)
        copy = self.file.parent / f"copy-{len(self.missing)}" / self.file.name
        copy.parent.mkdir()
        # Another process copies: this one would free its own locks on the file when it closes it.
        subprocess.run(["cp", self.file, copy], check=True)
        self.missing.append(self.ended - finished_in(copy))
        self.look()


def finished_in(file: Path) -> set[str]:
    with closing(sqlite3.connect(file)) as connection:
        return {key for (key,) in connection.execute("SELECT key FROM run WHERE status = 'finished'")}


@pytest.mark.parametrize("jobs", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_each_finished_run_of_a_sweep_is_in_a_copy(tmp_path, monkeypatch, jobs):
    monkeypatch.setattr(serving, "CHECK_SECONDS", 0.0)
    file = tmp_path / "r.db"
    ob.run("adding", "rnn", seed=9, settings=SETTINGS, db=file)
    with served(str(file)) as server, ob.open_results(file) as results:

        def look() -> None:
            urllib.request.urlopen(server.address, timeout=60).read()
            results.metrics()

        look()
        display = CopyingDisplay(file, look)
        ob.sweep("adding", ["rnn", "lstm"], seeds=2, settings=SETTINGS, db=file, jobs=jobs, display=display)
        assert len(display.ended) == len(display.missing) == 4
        assert display.missing == [set()] * 4
        assert log_size(file) == 0


@pytest.mark.slow
def test_copy_at_any_moment_has_the_runs_finished_before(tmp_path):
    file, copy = tmp_path / "r.db", tmp_path / "copy" / "r.db"
    copy.parent.mkdir()
    ob.run("adding", "rnn", seed=9, settings=SETTINGS, db=file)
    options = [word for name, value in SETTINGS.items() for word in ("-s", f"{name}={value}")]
    command = [sys.executable, "-m", "orthobench", "sweep", "adding", "--models", "rnn,lstm", "--seeds", "3", "-j", "2"]
    with served(str(file)) as server:
        sweep = subprocess.Popen([*command, "--db", file, *options], stdout=subprocess.DEVNULL)
        copied = 0
        while sweep.poll() is None:
            before = finished_in(file)
            if log_size(file):  # a run has just ended, and its rows are about to be folded
                continue
            subprocess.run(["cp", file, copy], check=True)
            assert before <= finished_in(copy)
            copied += 1
            if copied % 10 == 1:
                urllib.request.urlopen(server.address, timeout=60).read()
        assert sweep.returncode == 0
    assert copied  # how many copies a sweep leaves time for depends on the machine
    assert len(finished_in(file)) == 7


def test_run_that_ends_during_a_read_is_in_the_file_afterwards(tmp_path):
    file = tmp_path / "r.db"
    key = ob.run("adding", "rnn", settings=SETTINGS, db=file).key
    with open_store(str(file), create=True) as writer, open_store(str(file)) as reader:
        run = writer.get(key)
        with reader.snapshot() as session:
            session.connection().exec_driver_sql("SELECT count(*) FROM run").all()
            writer.update(run.id, {"status": "finished", "message": "written meanwhile"})
            assert log_size(file) > 0  # the read needs the rows from before
        assert log_size(file) == 0
    with closing(sqlite3.connect(file)) as connection:
        assert connection.execute("SELECT message FROM run").fetchall() == [("written meanwhile",)]


@pytest.mark.slow
def test_unfolded_log_is_reported(tmp_path, orthobench):
    file = tmp_path / "r.db"
    key = ob.run("adding", "rnn", settings=SETTINGS, db=file).key
    with open_store(str(file), create=True) as writer, closing(sqlite3.connect(file)) as other:
        other.isolation_level = None
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM run").fetchall()
        writer.update(writer.get(key).id, {"status": "finished"})
        for command in (("ls",), ("ls", "--json"), ("db", "info")):
            done = orthobench(*command, "--db", str(file))
            assert done.code == 0
            assert done.err.startswith("note: r.db-wal holds ")
            assert done.err.endswith(f"`orthobench db backup COPY --db {file}`\n")
            assert done.err.count("\n") == 1
        other.execute("ROLLBACK")
    done = orthobench("ls", "--db", str(file))
    assert (done.code, done.err) == (0, "")
