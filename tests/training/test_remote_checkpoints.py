"""Checkpoints at a URL behave as those in a folder: whole or not at all, with the one before behind them."""

from __future__ import annotations

import pytest
import torch
from fsspec.implementations.memory import MemoryFileSystem
from support.checkpoints import newest

from orthobench.errors import StorageError, UsageError
from orthobench.system.location import Location
from orthobench.system.remote_folder import RemoteFolder
from orthobench.training.checkpoint import NEWEST, PREVIOUS, CheckpointFolder, checkpoints_at

URL = "memory://bucket/checkpoints"


@pytest.fixture
def files():
    memory = MemoryFileSystem()
    yield memory
    memory.store.clear()
    memory.pseudo_dirs[:] = [""]


@pytest.fixture
def checkpoints(files):
    return checkpoints_at(Location(URL), "k")


def state(iteration: int):
    return {"logged": iteration, "weight": torch.full((3,), float(iteration))}


def test_newest_checkpoint_is_read_back_with_the_previous_behind_it(files, checkpoints):
    assert newest(checkpoints, 9) is None
    for iteration in (1, 2, 3):
        checkpoints.save(state(iteration))
    assert newest(checkpoints_at(Location(URL), "k"), 9)["weight"].tolist() == [3.0] * 3
    assert sorted(name.rpartition("/")[2] for name in files.find("/bucket")) == sorted((NEWEST, PREVIOUS))
    assert newest(checkpoints_at(Location(URL), "other"), 9) is None


def test_damaged_checkpoint_and_one_after_lost_rows_fall_back(files, checkpoints):
    checkpoints.save(state(1))
    checkpoints.save(state(2))
    files.pipe_file(f"/bucket/checkpoints/k/{NEWEST}", b"garbage")
    assert newest(checkpoints, 9)["logged"] == 1
    checkpoints.save(state(5))
    assert newest(checkpoints, 4)["logged"] == 1
    assert newest(checkpoints, 0) is None


@pytest.mark.parametrize("step", ["pipe_file", "rm_file", "mv"])
@pytest.mark.parametrize("call", [0, 1])
def test_interrupted_save_leaves_a_readable_checkpoint(files, checkpoints, monkeypatch, step, call):
    """Every call that changes something fails once, in a folder with two checkpoints."""
    checkpoints.save(state(1))
    checkpoints.save(state(2))
    real, calls = getattr(MemoryFileSystem, step), []

    def failing(self, *arguments, **options):
        calls.append(step)
        if len(calls) == call + 1:
            raise OSError("the network is down")
        return real(self, *arguments, **options)

    monkeypatch.setattr(MemoryFileSystem, step, failing)
    try:
        checkpoints.save(state(3))
    except StorageError as error:
        assert "the network is down" in str(error)  # noqa: PT017
    monkeypatch.undo()
    assert newest(checkpoints, 9)["logged"] in (2, 3)


def test_clearing_leaves_nothing(files, checkpoints):
    checkpoints.save(state(1))
    checkpoints.clear()
    assert files.find("/bucket") == []
    checkpoints.clear()


def test_unknown_url_scheme_is_refused():
    with pytest.raises(UsageError, match="cannot be kept at nosuch://x"):
        checkpoints_at(Location("nosuch://x"), "k")


@pytest.mark.parametrize("url", ["reference://x", "simplecache::reference://x", "dir::reference::file://x"])
def test_references_are_refused_before_fsspec_reads_them(url, monkeypatch):
    """Older versions of fsspec run code that a file of references contains."""
    monkeypatch.setattr("fsspec.core.url_to_fs", lambda *_: pytest.fail("opened"))
    with pytest.raises(UsageError, match="nothing can be written below a reference"):
        RemoteFolder(Location(url))


def test_folder_path_is_a_local_folder(tmp_path):
    assert isinstance(checkpoints_at(tmp_path, "k"), CheckpointFolder)


def test_remote_checkpoints_of_a_file_database_are_refused(orthobench, tiny_options):
    done = orthobench("run", "adding", "rnn", *tiny_options, "--checkpoints", URL)
    assert done.code == 2
    assert "--checkpoints is for a database server" in done.err
