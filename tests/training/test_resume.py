"""A run resumes only from a checkpoint of its own, of its rows, and on the kernels that it began with."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import replace

import pytest
import torch

from orthobench.plugins import Catalog
from orthobench.spec import resolve
from orthobench.store import Status, open_store
from orthobench.training.checkpoint import NEWEST, PREVIOUS, CheckpointFolder
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")


class StopAt(EventSink):
    """Asks to stop after an iteration, and keeps the iterations."""

    def __init__(self, last: int = -1) -> None:
        self.last, self.iterations = last, []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def should_stop(self):
        return bool(self.iterations) and self.iterations[-1] == self.last


@pytest.fixture
def config(tiny):
    return resolve(Catalog(), "adding", "scornn", tiny)


def train_in(folder, config, stop_at=-1, key=None, **options):
    sink = StopAt(stop_at)
    with open_store(str(folder / "r.db"), create=True) as store:
        checkpoints = CheckpointFolder(folder / "c", key or config.spec.key)
        options = {"checkpoint_every": 0, **options}
        with suppress(Interrupted):
            train(config, store, checkpoints, CPU, sinks=[sink], should_stop=sink.should_stop, **options)
        run = store.find(config.spec.key)
        rows = [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]
    return run, rows, sink.iterations


def test_auto_keeps_the_back_end_that_the_run_began_with(config, tmp_path, caplog):
    (tmp_path / "cut").mkdir()
    uncut = train_in(tmp_path, config, backend="reference")
    train_in(tmp_path / "cut", config, stop_at=6, backend="reference")
    run, rows, _ = train_in(tmp_path / "cut", config, backend="auto")
    assert rows == uncut[1]
    assert (run.status, run.backend) == (Status.FINISHED, "reference")
    assert caplog.messages == []


def test_another_back_end_is_warned_of_and_recorded_beside_the_first(config, tmp_path, caplog):
    train_in(tmp_path, config, stop_at=6, backend="cpu")
    run, _, iterations = train_in(tmp_path, config, backend="reference")
    assert iterations[0] == 7
    assert run.backend == "cpu, reference"
    (message,) = caplog.messages
    assert "resumes on other kernels (back end cpu before, reference now)" in message


def test_a_back_end_that_is_missing_now_is_warned_of(config, tmp_path, caplog, monkeypatch):
    train_in(tmp_path, config, stop_at=6)
    monkeypatch.setattr("orthobench.recurrence.native.missing", lambda: "there is no C compiler")
    run, *_ = train_in(tmp_path, config)
    assert run.backend == "cpu, reference"
    assert any("back end cpu (" in message and "cannot serve here" in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["torch", "cpu_capability"])
def test_another_torch_or_instruction_set_is_warned_of(config, tmp_path, caplog, monkeypatch, name):
    train_in(tmp_path, config, stop_at=6)
    now = {"torch": torch.__version__, "cpu_capability": "DEFAULT"} | {name: "other"}
    monkeypatch.setattr("orthobench.training.resume.kernels", lambda: now)
    train_in(tmp_path, config)
    assert any(f"{name} " in message and "other now" in message for message in caplog.messages)


def test_a_checkpoint_of_another_run_is_not_used(config, tmp_path, caplog, tiny):
    """The other run has weights of the same shapes."""
    uncut = train_in(tmp_path, config)
    (tmp_path / "cut").mkdir()
    other = resolve(Catalog(), "adding", "scornn", tiny, seed=1)
    train_in(tmp_path / "cut", config, stop_at=7)
    train_in(tmp_path / "cut", other, stop_at=7)
    folders = [tmp_path / "cut" / "c" / each.spec.key for each in (config, other)]
    shutil.rmtree(folders[0])
    shutil.copytree(folders[1], folders[0])
    assert train_in(tmp_path / "cut", config)[1] == uncut[1]
    assert any(f"it belongs to run {other.spec.key}" in message for message in caplog.messages)
    assert any("starts over" in message for message in caplog.messages)


def test_a_checkpoint_of_another_structure_gives_way_to_the_previous_one(config, tmp_path, caplog):
    uncut = train_in(tmp_path, config)
    (tmp_path / "cut").mkdir()
    train_in(tmp_path / "cut", config, stop_at=7)
    folder = tmp_path / "cut" / "c" / config.spec.key
    content = torch.load(folder / NEWEST, weights_only=True)
    previous = torch.load(folder / PREVIOUS, weights_only=True)["iteration"]
    content["model"] = {name: tensor[..., :1] for name, tensor in content["model"].items()}
    torch.save(content, folder / NEWEST)
    _, rows, iterations = train_in(tmp_path / "cut", config)
    assert rows == uncut[1]
    assert iterations[0] == previous + 1
    assert any("in loading state_dict" in message for message in caplog.messages)


def test_rows_of_another_machine_are_not_continued(config, tmp_path, caplog):
    """Rows merged from another machine differ in the last digits at the checkpoint's iteration."""
    train_in(tmp_path, config, stop_at=6)
    with closing(sqlite3.connect(tmp_path / "r.db")) as connection, connection:
        connection.execute("UPDATE metric SET value = value * (1 + 1e-12) WHERE split = 'test' AND iteration = 6")
        connection.execute("UPDATE metric SET value = value * (1 + 1e-12) WHERE split = 'test' AND iteration = 4")
    _, _, iterations = train_in(tmp_path, config)
    assert iterations[0] == 1
    assert any("the database has other rows at its iteration" in message for message in caplog.messages)


def test_checkpoints_of_older_versions_still_serve(config, tmp_path):
    uncut = train_in(tmp_path, config)
    (tmp_path / "cut").mkdir()
    train_in(tmp_path / "cut", config, stop_at=7)
    newest = tmp_path / "cut" / "c" / config.spec.key / NEWEST
    content = torch.load(newest, weights_only=True)
    for name in ("key", "rows", "kernels", "format", "best_valid", "plateaus", "threads"):
        del content[name]
    torch.save(content, newest)
    _, rows, iterations = train_in(tmp_path / "cut", config)
    assert (rows, iterations[0]) == (uncut[1], 8)


def test_a_checkpoint_of_a_newer_format_is_not_read(config, tmp_path, caplog):
    train_in(tmp_path, config, stop_at=7)
    folder = tmp_path / "c" / config.spec.key
    for name in (NEWEST, PREVIOUS):
        content = torch.load(folder / name, weights_only=True)
        torch.save(content | {"format": 99, "unknown": 1}, folder / name)
    _, _, iterations = train_in(tmp_path, replace(config))
    assert iterations[0] == 1
    assert any("its format 99 is newer" in message for message in caplog.messages)
