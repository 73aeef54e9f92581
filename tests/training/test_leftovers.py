"""What a process leaves that is killed at its end is removed by the next command that touches the run."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from fsspec.implementations.memory import MemoryFileSystem

import orthobench as ob
from orthobench.store import Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder, checkpoint_root
from orthobench.weights.weights_files import WeightsFolder, weights_folder

KILLED = """
import os, sys
import orthobench as ob
from orthobench.system import files
from orthobench.training.checkpoint import CheckpointFolder

if sys.argv[1] == "weights":
    rename = files.rename
    files.rename = lambda file, to: os._exit(9) if file.name.endswith(".safetensors.part") else rename(file, to)
else:
    CheckpointFolder.clear = lambda self: os._exit(9)
settings = dict(pair.split("=") for pair in sys.argv[2:])
options = ob.RunOptions(device="cpu", checkpoint_every=0, keep_weights="best")
ob.run("adding", "rnn", db="r.db", settings=settings, options=options)
"""


@pytest.fixture(scope="module")
def left_behind(tmp_path_factory) -> Callable[..., Path]:
    """A function that trains a run in a process that dies, once for the same words, and returns what it leaves."""

    @cache
    def kill(where: str, *words: str) -> Path:
        folder = tmp_path_factory.mktemp(where)
        done = subprocess.run(
            [sys.executable, "-c", KILLED, where, *words], cwd=folder, capture_output=True, text=True, check=False
        )
        assert done.returncode == 9, done.stderr
        return folder

    return kill


@pytest.fixture
def killed(left_behind, tmp_path, tiny, monkeypatch):
    """A function that puts here what a run leaves that dies as it removes its checkpoints or writes its weights."""
    monkeypatch.chdir(tmp_path)
    words = [f"{name}={value}" for name, value in tiny.items()]
    return lambda where: shutil.copytree(left_behind(where, *words), tmp_path, dirs_exist_ok=True)


def again(tiny, **options) -> Any:
    return ob.run("adding", "rnn", db="r.db", settings=tiny, options=ob.RunOptions(device="cpu", **options))


def names(folder: str) -> list[str]:
    return sorted(file.name for file in Path(folder).iterdir())


def test_run_removes_the_checkpoints_of_its_finished_run(killed, tiny):
    killed("checkpoints")
    with open_store("r.db") as store:
        (run,) = store.runs()
        assert run.status == Status.FINISHED
    folder = CheckpointFolder(Path(checkpoint_root("r.db")), run.key)
    assert folder.exists()
    with folder.lock():  # another process has the run
        assert again(tiny).key == run.key
        assert folder.exists()
    assert again(tiny).key == run.key
    assert not folder.folder.exists()


def test_sweep_removes_the_checkpoints_of_a_finished_run(killed, tiny):
    killed("checkpoints")
    ob.sweep("adding", "rnn", db="r.db", settings=tiny, jobs=0, dry_run=True)
    (folder,) = {file.parent for file in Path("r.db.checkpoints").glob("*/*.pt")}
    ob.sweep("adding", "rnn", db="r.db", settings=tiny, jobs=0)
    assert not folder.exists()


def test_checkpoints_of_other_runs_stay(killed, tiny):
    killed("checkpoints")
    with open_store("r.db") as store:
        (run,) = store.runs()
        store.update(run.id, {"status": Status.INTERRUPTED})
    ob.sweep("adding", "rnn", db="r.db", settings=tiny | {"hidden_size": "5"}, jobs=0)
    assert CheckpointFolder(Path(checkpoint_root("r.db")), run.key).exists()


@pytest.mark.parametrize("keep", ["best", "none"])
def test_resumed_run_leaves_no_part_of_weights(killed, tiny, keep):
    killed("weights")
    assert [name.endswith(".safetensors.part") for name in names("r.db.weights")] == [True]
    run = again(tiny, keep_weights=keep)
    assert run.status == Status.FINISHED
    assert names("r.db.weights") == ([f"{run.key}.best.safetensors"] if keep == "best" else [])


def test_delete_removes_parts_of_weights(killed, orthobench):
    killed("weights")
    assert orthobench("delete", "--task", "adding", "--db", "r.db", "--yes").code == 0
    with open_store("r.db") as store:
        assert store.runs() == []
    assert names("r.db.weights") == []


def test_parts_of_other_runs_and_of_other_files_stay(tmp_path):
    folder = weights_folder(Location(str(tmp_path / "r.db")))
    own = [".aa.best.safetensors.0123.part", "aa.last.safetensors.part"]
    others = [".ab.best.safetensors.0123.part", "a.part", "aa.best.safetensors"]
    Path(folder.root.real).mkdir()
    for name in (*own, *others):
        Path(folder.root.real, name).touch()
    folder.remove_parts("aa")
    assert names(folder.root.real) == sorted(others)


def test_a_url_keeps_no_part():
    files = MemoryFileSystem()
    part, whole = "/w/aa.best.safetensors." + "0" * 32, "/w/aa.best.safetensors"
    for name in (part, whole, part.replace("aa", "ab")):
        files.pipe_file(name, b"x")
    try:
        folder = WeightsFolder(Location("memory://w"))
        folder.remove_parts("aa")
        assert {name for name in files.store if name.startswith("/w/")} == {whole, part.replace("aa", "ab")}
    finally:
        files.store.clear()
        files.pseudo_dirs[:] = [""]
