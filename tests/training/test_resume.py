"""A run resumes only from a checkpoint of its own, of its rows, and on the kernels that it began with."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest
import torch
from support.trained import train_in

from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.store.merge import merge
from orthobench.training.checkpoint import NEWEST, PREVIOUS
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted
from orthobench.training.state import kernel_facts


@pytest.fixture
def config(tiny):
    return resolve(Catalog(), "adding", "scornn", tiny)


def test_auto_keeps_the_back_end_of_the_first_segment(config, tmp_path, caplog):
    (tmp_path / "cut").mkdir()
    uncut = train_in(tmp_path, config, backend="reference")
    train_in(tmp_path / "cut", config, stop_at=6, backend="reference")
    run, rows, _ = train_in(tmp_path / "cut", config, backend="auto")
    assert rows == uncut[1]
    assert (run.status, run.backend) == (Status.FINISHED, "reference")
    assert caplog.messages == []


def test_another_back_end_warns_and_is_recorded(config, tmp_path, caplog):
    train_in(tmp_path, config, stop_at=6, backend="cpu")
    run, _, iterations = train_in(tmp_path, config, backend="reference")
    assert iterations[0] == 7
    assert run.backend == "cpu, reference"
    (message,) = caplog.messages
    assert "resumes on other kernels (back end cpu before, reference now)" in message


def test_missing_back_end_warns(config, tmp_path, caplog, monkeypatch):
    train_in(tmp_path, config, stop_at=6)
    monkeypatch.setattr("orthobench.recurrence.cpu.call_c.missing", lambda: "there is no C compiler")
    run, *_ = train_in(tmp_path, config)
    assert run.backend == "cpu, reference"
    assert any("back end cpu before, and now" in message and "no C compiler" in message for message in caplog.messages)


def test_run_from_a_gpu_goes_on_with_a_warning(config, tmp_path, caplog, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("orthobench.training.trainer.Trainer.backends", lambda self: {"cuda"})
        train_in(tmp_path, config, stop_at=6)
    train_in(tmp_path, config)
    assert any("(back end cuda before, and now the run is on the CPU)" in message for message in caplog.messages)


@pytest.mark.parametrize("name", ["torch", "cpu_capability", "kernel_code"])
def test_changed_torch_instruction_set_or_kernel_code_warns(config, tmp_path, caplog, monkeypatch, name):
    train_in(tmp_path, config, stop_at=6)
    now = kernel_facts() | {name: "other"}
    monkeypatch.setattr("orthobench.training.resume.kernel_facts", lambda: now)
    train_in(tmp_path, config)
    (message,) = caplog.messages
    assert f"resumes on other kernels ({name} {kernel_facts()[name]} before, other now)" in message


def test_changed_kernel_code_does_not_concern_the_reference(config, tmp_path, caplog, monkeypatch):
    train_in(tmp_path, config, stop_at=6, backend="reference")
    now = kernel_facts() | {"kernel_code": "other"}
    monkeypatch.setattr("orthobench.training.resume.kernel_facts", lambda: now)
    train_in(tmp_path, config)
    assert caplog.messages == []


def test_checkpoint_of_another_run_is_not_used(config, tmp_path, caplog, tiny):
    """The other run has weights of the same shapes."""
    uncut = train_in(tmp_path, config)
    (tmp_path / "cut").mkdir()
    other = resolve(Catalog(), "adding", "scornn", tiny, seed=1)
    train_in(tmp_path / "cut", config, stop_at=7)
    train_in(tmp_path / "cut", other, stop_at=7)
    folders = [tmp_path / "cut" / "r.db.checkpoints" / each.spec.key for each in (config, other)]
    shutil.rmtree(folders[0])
    shutil.copytree(folders[1], folders[0])
    assert train_in(tmp_path / "cut", config)[1] == uncut[1]
    assert any(f"it belongs to run {other.spec.key}" in message for message in caplog.messages)
    assert any("starts over" in message for message in caplog.messages)


def test_checkpoint_of_another_structure_falls_back_to_the_previous_one(config, tmp_path, caplog):
    uncut = train_in(tmp_path, config)
    (tmp_path / "cut").mkdir()
    train_in(tmp_path / "cut", config, stop_at=7)
    folder = tmp_path / "cut" / "r.db.checkpoints" / config.spec.key
    content = torch.load(folder / NEWEST, weights_only=True)
    previous = torch.load(folder / PREVIOUS, weights_only=True)["iteration"]
    content["model"] = {name: tensor[..., :1] for name, tensor in content["model"].items()}
    torch.save(content, folder / NEWEST)
    _, rows, iterations = train_in(tmp_path / "cut", config)
    assert rows == uncut[1]
    assert iterations[0] == previous + 1
    assert any("in loading state_dict" in message for message in caplog.messages)


def change_rows(folder, iteration):
    """Change the test rows of an iteration by one part in 10^12, as another machine may compute them."""
    with closing(sqlite3.connect(folder / "r.db")) as connection, connection:
        connection.execute(
            "UPDATE metric SET value = value * (1 + 1e-12) WHERE iteration = ? "
            "AND series_id IN (SELECT id FROM series WHERE split = 'test')",
            (iteration,),
        )


def merge_from(folder, into):
    with open_store(str(folder / "r.db")) as source, open_store(str(into / "r.db")) as target:
        assert len(merge(source, target).replaced) == 1


@pytest.mark.parametrize("other_stop", [7, 10])
@pytest.mark.parametrize("other_rows", [2, 6])
def test_rows_of_another_machine_are_not_continued(config, tmp_path, caplog, other_rows, other_stop):
    """The other machine got further; its rows differ at the local checkpoint's iteration 6, or only before it."""
    folders = {name: tmp_path / name for name in ("uncut", "local", "other")}
    for folder in folders.values():
        folder.mkdir()
    uncut = train_in(folders["uncut"], config)
    train_in(folders["local"], config, stop_at=6)
    train_in(folders["other"], config, stop_at=other_stop)
    change_rows(folders["other"], other_rows)
    merge_from(folders["other"], folders["local"])
    run, rows, iterations = train_in(folders["local"], config)
    assert (run.status, rows) == (Status.FINISHED, uncut[1])
    assert iterations[0] == 1
    assert len([message for message in caplog.messages if "the rows of another process" in message]) == 2


def test_run_continued_elsewhere_and_merged_back_resumes(config, tmp_path, caplog):
    """The database and the checkpoints went to the other machine, so the rows up to the checkpoint are the same."""
    (tmp_path / "local").mkdir()
    uncut = train_in(tmp_path, config)
    train_in(tmp_path / "local", config, stop_at=6)
    shutil.copytree(tmp_path / "local", tmp_path / "other")
    train_in(tmp_path / "other", config, stop_at=10)
    change_rows(tmp_path / "other", 8)
    merge_from(tmp_path / "other", tmp_path / "local")
    _, rows, iterations = train_in(tmp_path / "local", config)
    assert (rows, iterations[0]) == (uncut[1], 7)
    assert caplog.messages == []


def segments_in(folder, run):
    with open_store(str(folder / "r.db")) as store:
        return [(row.iteration, row.backend, row.environment.facts["machine"]) for row in store.segments([run.id])]


def test_every_segment_keeps_its_environment_and_back_end(config, tmp_path, monkeypatch):
    def train_on(machine, **options):
        monkeypatch.setattr("orthobench.system.environment.describe", lambda *_: {"machine": machine})
        return train_in(tmp_path, config, **options)[0]

    run = train_on("first", stop_at=5, backend="cpu")
    assert segments_in(tmp_path, run) == [(0, "cpu", "first")]
    train_on("second", stop_at=7, backend="reference")
    run = train_on("third", stop_at=9, backend="cpu")
    parts = [(0, "cpu", "first"), (5, "reference", "second"), (7, "cpu", "third")]
    assert segments_in(tmp_path, run) == parts
    assert (run.environment.facts, run.backend) == ({"machine": "third"}, "cpu, reference")
    (tmp_path / "r.db.checkpoints" / config.spec.key / NEWEST).unlink()
    run = train_on("fourth", backend="cpu")  # resumes at iteration 8
    assert segments_in(tmp_path, run) == [*parts, (8, "cpu", "fourth")]


def test_restarted_run_keeps_no_earlier_segment(config, tmp_path, monkeypatch):
    monkeypatch.setattr("orthobench.system.environment.describe", lambda *_: {"machine": "here"})
    train_in(tmp_path, config, stop_at=5, backend="cpu")
    train_in(tmp_path, config, stop_at=7, backend="cpu")
    shutil.rmtree(tmp_path / "r.db.checkpoints" / config.spec.key)
    run, *_ = train_in(tmp_path, config, backend="reference")
    assert segments_in(tmp_path, run) == [(0, "reference", "here")]
    assert run.backend == "reference"


def test_checkpoint_with_a_missing_field_falls_back_to_the_previous_one(config, tmp_path, caplog):
    train_in(tmp_path, config, stop_at=7)
    newest = tmp_path / "r.db.checkpoints" / config.spec.key / NEWEST
    content = torch.load(newest, weights_only=True)
    del content["optimizers"]
    torch.save(content, newest)
    _, _, iterations = train_in(tmp_path, config)
    assert iterations[0] == 7
    assert any("missing 1 required positional argument: 'optimizers'" in message for message in caplog.messages)


def test_checkpoint_of_another_format_is_not_read(config, tmp_path, caplog):
    train_in(tmp_path, config, stop_at=7)
    folder = tmp_path / "r.db.checkpoints" / config.spec.key
    for name in (NEWEST, PREVIOUS):
        content = torch.load(folder / name, weights_only=True)
        torch.save(content | {"format": 99, "unknown": 1}, folder / name)
    _, _, iterations = train_in(tmp_path, replace(config))
    assert iterations[0] == 1
    assert any("its format is 99, and this orthobench reads" in message for message in caplog.messages)


@pytest.mark.parametrize("calls", [2, 17, *(pytest.param(n, marks=pytest.mark.slow) for n in (7, 12, 22, 27, 32, 37))])
def test_stop_inside_a_test_ends_with_uninterrupted_numbers(tmp_path, tiny, calls):
    """A test has four batches, and probes follow at the end of an epoch."""
    config = resolve(Catalog(), "adding", "scornn", tiny | {"evaluation_batch_size": "5"})
    (tmp_path / "cut").mkdir()
    uncut, rows, _ = train_in(tmp_path, config)
    countdown = iter(range(calls, 0, -1))

    def should_stop():
        return next(countdown, 0) == 1

    with open_store(str(tmp_path / "cut" / "r.db"), create=True) as store, pytest.raises(Interrupted):
        train(config, store, RunOptions(device="cpu", checkpoint_every=1000), should_stop=should_stop)
    resumed, rows_after, _ = train_in(tmp_path / "cut", config)
    assert rows_after == rows
    assert (resumed.best_value, resumed.best_iteration) == (uncut.best_value, uncut.best_iteration)


def test_stop_is_noticed_between_the_batches_of_a_test(tmp_path, tiny, monkeypatch):
    config = resolve(Catalog(), "adding", "scornn", tiny | {"evaluation_batch_size": "1"})
    measured = []
    measure = config.task_class.measure
    noting = lambda task, *tensors: measured.append(1) or measure(task, *tensors)  # noqa: E731
    monkeypatch.setattr(config.task_class, "measure", noting)
    with open_store(str(tmp_path / "r.db"), create=True) as store, pytest.raises(Interrupted):
        train(config, store, RunOptions(device="cpu"), should_stop=lambda: len(measured) == 3)
    assert len(measured) == 3
