"""Locks of runs between processes: one holder at a time, no file of a finished run, no lock of a dead process."""

from __future__ import annotations

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path

import pytest

from orthobench.errors import RunLockedError
from orthobench.training.announcements import announced, running_sweeps
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.locks import GUARD

FORKS = multiprocessing.get_context("fork")
PROCESSES = 4
ROUNDS, SECONDS = 10, 3.0
"""What each process does at least. Taking turns is slow; without turns there are thousands of rounds in the time."""


@pytest.fixture
def folder(tmp_path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path / "checkpoints", "abc")


def lock_again_and_again(root: Path, results: multiprocessing.SimpleQueue) -> None:
    """Lock a run, and put the number of times at which another process held the lock as well."""
    folder, marker = CheckpointFolder(root, "abc"), root / "holder"
    failures, locked, end = 0, 0, time.monotonic() + SECONDS
    while locked < ROUNDS or time.monotonic() < end:
        folder.is_locked()
        try:
            with folder.lock():
                locked += 1
                try:
                    os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
                    os.sched_yield()
                    marker.unlink()
                except FileExistsError:
                    failures += 1
        except RunLockedError:
            pass
    results.put(failures)


@pytest.mark.slow
def test_two_processes_never_hold_the_lock_of_one_run(folder):
    """The lock's file is removed at each release, while the other processes open and lock it."""
    folder.root.mkdir()
    results = FORKS.SimpleQueue()
    processes = [FORKS.Process(target=lock_again_and_again, args=(folder.root, results)) for _ in range(PROCESSES)]
    for process in processes:
        process.start()
    assert [results.get() for _ in processes] == [0] * PROCESSES
    for process in processes:
        process.join()
    assert {path.name for path in folder.root.iterdir()} <= {GUARD}  # some versions of filelock remove it


def hold(root: Path, is_held: Event) -> None:
    with CheckpointFolder(root, "abc").lock():
        is_held.set()
        time.sleep(600)


def test_killed_process_releases_its_lock(folder):
    is_held = FORKS.Event()
    process = FORKS.Process(target=hold, args=(folder.root, is_held))
    process.start()
    is_held.wait()
    assert folder.is_locked()
    with pytest.raises(RunLockedError, match="run abc is being trained by another process"), folder.lock():
        pass
    assert folder.is_locked()  # a refused process does not remove the holder's file
    process.kill()
    process.join()
    assert folder.lock_file.exists()
    assert not folder.is_locked()
    assert folder.lock_file.exists()  # a question removes nothing
    with folder.lock():
        assert CheckpointFolder(folder.root, "abc").is_locked()


def test_query_creates_no_file(folder):
    assert not folder.is_locked()
    assert not folder.root.exists()
    folder.root.mkdir()
    assert not folder.is_locked()
    assert list(folder.root.iterdir()) == []


def test_run_that_raises_leaves_no_lock(folder):
    with pytest.raises(ZeroDivisionError), folder.lock():
        raise ZeroDivisionError
    assert not folder.lock_file.exists()
    with folder.lock():
        pass


def test_list_of_a_sweep_is_there_until_its_end(tmp_path):
    runs = [{"key": "a", "label": "[1/1] lstm seed 0"}]
    with announced(tmp_path / "checkpoints", runs):
        (sweep,) = running_sweeps(tmp_path / "checkpoints")
        assert sweep["runs"] == runs
    assert running_sweeps(tmp_path / "checkpoints") == []
    assert list((tmp_path / "checkpoints").iterdir()) == []


def test_list_of_a_killed_sweep_does_not_count_and_the_next_sweep_removes_it(tmp_path):
    left = tmp_path / "0.sweep"
    left.write_text('{"began": "2026-01-01T00:00:00", "runs": []}')  # nobody holds its lock
    assert running_sweeps(tmp_path) == []
    with announced(tmp_path, []):
        assert not left.exists()
        assert len(running_sweeps(tmp_path)) == 1
