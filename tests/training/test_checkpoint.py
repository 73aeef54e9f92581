"""Checkpoints by themselves: whole or not there, never taken for more than they are."""

from __future__ import annotations

import errno
import os
import pickle
import zipfile
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from support.checkpoints import newest
from support.configs import with_classes

from orthobench.errors import StorageError, UsageError
from orthobench.models.lstm import LSTM
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.training.checkpoint import NEWEST, PREVIOUS, CheckpointFolder
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import CheckpointSchedule, Interrupted


@pytest.fixture
def folder(tmp_path) -> CheckpointFolder:
    return CheckpointFolder(tmp_path, "abc")


def state(number: int) -> dict:
    return {"logged": number, "weights": torch.full((1000,), float(number)), "pair": (0.5, number), "none": None}


def flip_a_bit_of_a_weight(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    at = raw.index(state(2)["weights"].numpy().tobytes()) + 1234
    raw[at] ^= 1
    path.write_bytes(raw)


class Attack:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def compress(path: Path) -> None:
    """Pack the members as a bomb does; torch itself would read them."""
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(name, content)


DAMAGE = {
    "compressed": compress,
    "truncated": lambda path: path.write_bytes(path.read_bytes()[:-500]),
    "empty": lambda path: path.write_bytes(b""),
    "garbage": lambda path: path.write_bytes(os.urandom(5000)),
    "one bit": flip_a_bit_of_a_weight,
    "something else": lambda path: torch.save({"iteration": 3}, path),
    "a text for its iteration": lambda path: torch.save({"logged": "2"}, path),
    "None for its iteration": lambda path: torch.save({"logged": None}, path),
    "code": lambda path: torch.save({"logged": 2, "attack": Attack(path.with_name("executed"))}, path),
    "a pickle": lambda path: path.write_bytes(pickle.dumps(Attack(path.with_name("executed")))),
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_damaged_checkpoint_is_never_loaded_and_never_replaces_a_good_one(folder, caplog, damage):
    folder.save(state(1))
    folder.save(state(2))
    assert newest(folder, 2)["logged"] == 2
    DAMAGE[damage](folder.folder / NEWEST)
    loaded = newest(folder, 2)
    assert loaded["logged"] == 1
    assert [line.partition(" is ")[2] for line in caplog.messages] == [
        "damaged and removed: it resumes from the one before or starts over"
    ]
    assert torch.equal(loaded["weights"], state(1)["weights"])
    assert (loaded["pair"], loaded["none"]) == ((0.5, 1), None)
    assert not (folder.folder / "executed").exists()
    folder.save(state(3))
    (folder.folder / NEWEST).write_bytes(b"")
    assert newest(folder, 3)["logged"] == 1


def test_checkpoint_after_lost_rows_is_not_used(folder):
    folder.save(state(4))
    folder.save(state(6))
    assert newest(folder, 5)["logged"] == 4
    assert newest(folder, -1) is None
    assert list(folder.folder.iterdir()) == []


def test_unreadable_checkpoint_is_kept(folder, monkeypatch):
    """A missing permission must not restart the training."""
    folder.save(state(1))

    def refuse(*arguments, **options):
        raise PermissionError(errno.EACCES, "Permission denied")

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", refuse)
        with pytest.raises(UsageError, match=r"checkpoint.pt cannot be read: Permission denied; make it readable"):
            newest(folder, 1)
    assert newest(folder, 1)["logged"] == 1


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EROFS, errno.EIO])
@pytest.mark.parametrize("where", ["os.fsync", "pathlib.Path.replace"])
def test_failed_write_keeps_the_previous_checkpoint(folder, where, number, monkeypatch):
    folder.save(state(1))
    folder.save(state(2))

    def fail(*arguments):
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(where, fail)
        with pytest.raises(StorageError) as error:
            folder.save(state(3))
    line = str(error.value)
    assert "\n" not in line
    assert line.startswith(f"checkpoint {folder.folder / NEWEST} cannot be written: {os.strerror(number)}: ")
    assert ("make room" in line) == (number == errno.ENOSPC)
    assert {path.name for path in folder.folder.iterdir()} == {NEWEST, PREVIOUS}
    assert newest(folder, 2)["logged"] == 2


def test_file_and_name_reach_the_disk_before_the_previous_one_is_removed(folder, monkeypatch):
    """The order that survives a loss of power: content, then names, each name for good before the next change."""
    done = []
    fsync, replace = os.fsync, Path.replace

    def syncing(descriptor: int) -> None:
        done.append(f"sync {Path(f'/proc/self/fd/{descriptor}').readlink().name}")
        fsync(descriptor)

    def replacing(self: Path, to: Path) -> Path:
        done.append(f"{self.name} -> {to.name}")
        return replace(self, to)

    folder.save(state(1))
    monkeypatch.setattr("os.fsync", syncing)
    monkeypatch.setattr(Path, "replace", replacing)
    folder.save(state(2))
    assert done == [
        f"sync {NEWEST}.part",
        f"{NEWEST} -> {PREVIOUS}",
        "sync abc",
        f"{NEWEST}.part -> {NEWEST}",
        "sync abc",
    ]


def test_checkpoint_is_due_after_its_interval_which_a_slow_save_stretches(monkeypatch):
    """A save of two seconds may take a hundredth of the time, so the next one is due after 200 seconds, not 30."""
    clock = SimpleNamespace(now=1000.0)
    monkeypatch.setattr("orthobench.training.loop.time", SimpleNamespace(perf_counter=lambda: clock.now))
    schedule = CheckpointSchedule(30.0)

    def is_due_at(seconds: float) -> bool:
        clock.now = seconds
        return schedule.is_due()

    def save(start: float, end: float) -> None:
        clock.now = end
        schedule.saved(start)

    assert [is_due_at(seconds) for seconds in (1000.0, 1029.0, 1030.0)] == [False, False, True]
    save(1030.0, 1032.0)
    assert [is_due_at(seconds) for seconds in (1062.0, 1231.0, 1233.0)] == [False, False, True]
    save(1233.0, 1233.25)  # less than a hundredth of 30 seconds
    assert [is_due_at(seconds) for seconds in (1263.0, 1263.25)] == [False, True]


class Noisy(LSTM):
    """Draws from the process's own generators at every step, and notes what."""

    drawn: list[float]

    def after_step(self) -> None:
        for parameter in self.parameters():
            parameter.add_(torch.randn_like(parameter), alpha=0.01)
        self.drawn.append(torch.rand(1).item() + torch.rand(1, device=self.recurrent_weight.device).item())


class StopAt(EventSink):
    def __init__(self, last: int) -> None:
        self.last, self.iteration = last, 0

    def on_iteration(self, iteration: int) -> None:
        self.iteration = iteration

    def should_stop(self) -> bool:
        return self.iteration == self.last


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_generator_continues_where_it_was(device, tiny, tmp_path):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no CUDA device here")
    config = with_classes(resolve(Catalog(), "adding", "lstm", tiny), model_class=Noisy)
    results = {}
    for name, stops in (("uncut", [-1]), ("cut", [1, 5, 8, -1])):
        Noisy.drawn = []
        for stop in stops:
            observer = StopAt(stop)
            torch.manual_seed(12345)  # what a new process would start with is not what goes on
            with open_store(str(tmp_path / f"{name}.db"), create=True) as store, suppress(Interrupted):
                train(config, store, RunOptions(device=device), [observer], observer.should_stop)
        with open_store(str(tmp_path / f"{name}.db")) as store:
            (run,) = store.runs()
            results[name] = Noisy.drawn, [(m.name, m.iteration, m.value) for m in store.metrics([run.id])]
    assert len(results["uncut"][0]) == 12
    assert results["cut"] == results["uncut"]
