"""A full disk, a folder that cannot be written: the run stops with one line, and resumes without loss."""

from __future__ import annotations

import errno
import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest
from support.crash import call

from orthobench.errors import StorageError
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import Status, Store, open_store
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train

SETTINGS = {
    "sequence_length": "10",
    "train_size": "40",
    "test_size": "20",
    "batch_size": "10",
    "epochs": "12",
    "evaluate_every": "1",
    "hidden_size": "30",
}
COMMAND = ["run", "adding", "lstm", *(option for key, value in SETTINGS.items() for option in ("-s", f"{key}={value}"))]
COMMAND += ["--checkpoint-every", "0"]


def numbers(store: Store) -> tuple:
    (run,) = store.runs()
    metrics = [(m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics([run.id])]
    traces = [(t.name, t.epoch, t.iteration, list(t.values)) for t in store.traces([run.id])]
    return run.status, run.iterations, run.final_value, run.best_value, run.best_iteration, metrics, traces


def found_in(database: Path) -> tuple:
    with open_store(str(database)) as store:
        with store.engine.connect() as connection:
            assert connection.exec_driver_sql("PRAGMA integrity_check").scalar() == "ok"
        return numbers(store)


@pytest.fixture(scope="module")
def uncut(tmp_path_factory) -> tuple:
    folder = tmp_path_factory.mktemp("uncut")
    assert call(folder, COMMAND) == 0, (folder / "output").read_text()
    return found_in(folder / "results.db")


@pytest.fixture
def small_disk(tmp_path):
    """A disk of 2 MB: a function that mounts it, also again with other options."""
    if os.geteuid() != 0:
        pytest.skip("only root mounts a disk")
    disk = tmp_path / "disk"
    disk.mkdir()

    def mount(*options: str) -> Path:
        command = ["mount", "-t", "tmpfs", "-o", ",".join(("size=2m", *options)), "tmpfs", str(disk)]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            pytest.skip(f"no disk can be mounted here: {done.stderr.strip()}")
        return disk

    yield mount
    subprocess.run(["umount", str(disk)], check=True)


def fill(disk: Path, left: int) -> None:
    """Fill the disk until `left` bytes are free."""
    ballast = disk / "ballast"
    ballast.unlink(missing_ok=True)
    free = shutil.disk_usage(disk).free - left
    if free > 0:
        ballast.write_bytes(bytes(free))


def error_line(output: str) -> str:
    """Return the only line of the error."""
    lines = [line for line in output.splitlines() if line.startswith("error:")]
    assert len(lines) == 1, output
    assert output.splitlines()[-1] == lines[0]
    assert "Traceback" not in output
    return lines[0]


@pytest.mark.slow
def test_full_disk_stops_a_run_that_resumes_when_there_is_room(small_disk, uncut, tmp_path):
    """With a little more room every time, it is something else that does not fit."""
    disk, log, unwritable = small_disk(), tmp_path / "outside", set()
    log.mkdir()
    command = [*COMMAND, "--db", str(disk / "results.db")]
    for kilobytes in range(0, 1000, 60):
        fill(disk, 1024 * kilobytes)
        code = call(log, command)
        if code == 0:
            break
        assert code == 2, (log / "output").read_text()
        line = error_line((log / "output").read_text())
        what, file = re.fullmatch(
            r"error: (database|checkpoint|checkpoint folder) (\S+) cannot be written: .*: make room there, "
            "and run the same command again",
            line,
        ).groups()
        assert file.startswith(str(disk / "results."))
        assert not list(disk.rglob("*.part"))
        unwritable.add(what)
    assert unwritable >= {"database", "checkpoint"}
    fill(disk, 2 * 1024 * 1024)
    assert call(log, command) == 0, (log / "output").read_text()
    assert found_in(disk / "results.db") == uncut


def test_read_only_disk_is_reported_before_training(small_disk, uncut, tmp_path):
    disk, log = small_disk(), tmp_path / "outside"
    log.mkdir()
    command = [*COMMAND, "--db", str(disk / "results.db")]
    fill(disk, 400 * 1024)
    assert call(log, command) == 2  # half-way
    (disk / "ballast").unlink()
    with closing(sqlite3.connect(disk / "results.db")) as connection:  # the log moves into the file
        connection.execute("SELECT count(*) FROM run").fetchall()
    before = {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()}
    small_disk("remount", "ro")
    assert call(log, command) == 2
    line = error_line((log / "output").read_text())
    assert line == f"error: database {disk / 'results.db'} cannot be written: name one elsewhere"
    assert call(log, ["ls", "--db", str(disk / "results.db")]) == 0, (log / "output").read_text()
    assert "interrupted" in (log / "output").read_text()
    with pytest.raises(StorageError, match=r"checkpoint folder \S+ cannot be written: Read-only file system: make its"):
        CheckpointFolder(disk / "other", "k").lock().__enter__()
    assert {path: path.read_bytes() for path in disk.rglob("*") if path.is_file()} == before
    small_disk("remount", "rw")
    assert call(log, command) == 0, (log / "output").read_text()
    assert found_in(disk / "results.db") == uncut


class Watching(EventSink):
    """Does something after an iteration."""

    def __init__(self, at: int = -1, then=None) -> None:
        self.at, self.then = at, then

    def on_iteration(self, iteration: int) -> None:
        if iteration == self.at:
            self.then()


def carry_out(folder: Path, store: Store, observer: Watching, **settings: str) -> None:
    config = resolve(Catalog(), "adding", "lstm", SETTINGS | settings)
    train(config, store, RunOptions(device="cpu", checkpoint_every=0), [observer])


PRAGMAS = {
    "max_page_count = 1": "the disk is full: make room there, and run the same command again",
    "query_only = 1": "attempt to write a readonly database: make its folder writable, or name another location, "
    "and run the same command again",
}


@pytest.mark.slow
@pytest.mark.parametrize("pragma", PRAGMAS)
def test_database_that_becomes_unwritable_stops_the_run(pragma, tmp_path):
    longer = {"epochs": "30"}  # the rows of a shorter run may fit into the pages that the file has
    with open_store(str(tmp_path / "uncut.db"), create=True) as store:
        carry_out(tmp_path, store, Watching(), **longer)
    path = tmp_path / "r.db"
    with open_store(str(path), create=True) as store:

        def forbid() -> None:
            with store.engine.connect() as connection:
                connection.exec_driver_sql(f"PRAGMA {pragma}")

        with pytest.raises(StorageError) as error:
            carry_out(tmp_path, store, Watching(15, forbid), **longer)
    assert str(error.value) == f"database {path} cannot be written: {PRAGMAS[pragma]}"
    assert found_in(path)[0] in (Status.INTERRUPTED, Status.RUNNING)  # which nobody may have been able to write
    with open_store(str(path)) as store:
        carry_out(tmp_path, store, Watching(), **longer)
    assert found_in(path) == found_in(tmp_path / "uncut.db")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EDQUOT])
def test_checkpoints_that_become_unwritable_stop_the_run(number, uncut, tmp_path, monkeypatch):
    path = tmp_path / "r.db"

    def fail(descriptor: int) -> None:
        raise OSError(number, os.strerror(number))

    with open_store(str(path), create=True) as store:
        with monkeypatch.context() as patched, pytest.raises(StorageError, match=os.strerror(number)):
            carry_out(tmp_path, store, Watching(15, lambda: patched.setattr("os.fsync", fail)))
        (run,) = store.runs()
        assert run.status == Status.INTERRUPTED
        assert os.strerror(number) in run.message
        resumed = []
        carry_out(tmp_path, store, Watching(15, lambda: resumed.append(15)))
        assert resumed == [15]  # from the checkpoint before
    assert found_in(path) == uncut


def test_database_older_than_its_checkpoints_loses_no_epoch(uncut, tmp_path):
    """An older copy was put back, or a loss of power took the last commits: what the rows lack is trained again."""
    path, copy = tmp_path / "r.db", tmp_path / "copy.db"

    def die() -> None:
        raise SystemError("cut off")

    for at, to in ((20, copy), (40, None)):
        with open_store(str(path), create=True) as store, pytest.raises(SystemError):
            carry_out(tmp_path, store, Watching(at, die))
        if to:
            shutil.copy(path, to)
    shutil.copy(copy, path)
    with open_store(str(path)) as store:
        carry_out(tmp_path, store, Watching())
    assert found_in(path) == uncut
