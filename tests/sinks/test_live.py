"""Runs at TensorBoard, MLflow and W&B while they train: the database's numbers, and a training that nothing stops."""

from __future__ import annotations

import logging
import math
import socket
from contextlib import suppress

import pytest
import torch
from support.destinations import all_of, as_sent, read_back, stored
from support.records import run_record

from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.sinks import live
from orthobench.sinks.live import LiveSinks
from orthobench.sinks.targets import Target, parse_target
from orthobench.spec.resolve import resolve
from orthobench.store import MetricRow, Status, open_store
from orthobench.system.location import Location
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")


@pytest.fixture
def config(tiny):
    return resolve(Catalog(), "adding", "scornn", tiny | {"epochs": "4"})


def train_to(config, folder, *targets, stop_after=None, clear=False):
    """Train a run with destinations, up to a number of iterations, and return its points in the database."""
    iterations = 0

    def should_stop():
        nonlocal iterations
        iterations += 1
        return stop_after is not None and iterations > stop_after

    with open_store(str(folder / "r.db"), create=True) as store:
        if clear:
            CheckpointFolder(folder / "r.db.checkpoints", config.spec.key).clear()
        with LiveSinks(store, [parse_target(target) for target in targets]) as sinks, suppress(Interrupted):
            options = RunOptions(device="cpu", tags=("first", "a tag"))
            train(config, store, options, [sinks.sink(config.spec.key)], should_stop)
        return stored(store, config.spec.key)


def test_destination_has_the_points_of_the_database(config, kind, location, tmp_path):
    points = train_to(config, tmp_path, f"{kind}:{location}")
    sent = read_back(kind, location, config.spec.key)
    assert sent.points == as_sent(kind, points)
    assert sent.doubles == []
    assert {"mse/test", "loss/train", "orthogonality/W", "gradient_norm/h/first"} <= {name for name, _ in points}
    assert sent.name == config.spec.key
    assert sorted(sent.tags) == ["a tag", "first"]
    assert sent.status == "finished"
    expected = {"hidden_size": "8", "seed": "0", "model": "scornn", "task": "adding", "learning_rate": "0.001"}
    assert expected.items() <= sent.settings.items()


def test_destinations_do_not_change_the_numbers(config, kind, location, tmp_path):
    (tmp_path / "with").mkdir()
    (tmp_path / "without").mkdir()
    assert train_to(config, tmp_path / "with", f"{kind}:{location}") == train_to(config, tmp_path / "without")


def test_resumed_run_is_a_new_run_with_the_whole_series(config, kind, location, tmp_path):
    first = train_to(config, tmp_path, f"{kind}:{location}", stop_after=6)
    assert read_back(kind, location, config.spec.key).points == as_sent(kind, first)
    assert read_back(kind, location, config.spec.key).status == "interrupted"
    points = train_to(config, tmp_path, f"{kind}:{location}")
    *earlier, sent = all_of(kind, location, config.spec.key)
    assert len(points) > len(first)
    assert (sent.points, sent.doubles, sent.status) == (as_sent(kind, points), [], "finished")
    assert [(run.points, run.status) for run in earlier] == (
        [] if kind == "tensorboard" else [(as_sent(kind, first), "interrupted")]
    )


def test_restart_leaves_the_abandoned_run_except_in_tensorboard(config, kind, location, tmp_path):
    """Without its checkpoint the run starts over, and stops earlier than before."""
    first = train_to(config, tmp_path, f"{kind}:{location}", stop_after=12)
    points = train_to(config, tmp_path, f"{kind}:{location}", stop_after=4, clear=True)
    assert len(points) < len(first)
    held = [points] if kind == "tensorboard" else [points, first]
    assert [run.points for run in all_of(kind, location, config.spec.key)] == [as_sent(kind, each) for each in held]
    assert all(run.doubles == [] for run in all_of(kind, location, config.spec.key))


@pytest.mark.parametrize("kind", ["tensorboard", "trackio"], indirect=True)
def test_run_that_starts_over_within_a_session_begins_a_new_one(kind, location, tmp_path):
    """As after the death of a worker, whose rows beyond the checkpoint are rewound."""
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        run = store.start(run_record(), {"cpu": "a"}, [])
        key = run.key

        def add(iteration, value):
            store.log(run.id, [MetricRow("test", "mse", 0, iteration, value)], [], {"iterations": iteration})

        (channel,) = LiveSinks(store, [parse_target(f"{kind}:{location}")]).channels
        channel._serve(key, starts=True)
        for iteration in (0, 5, 10):
            add(iteration, 1.0)
            channel._serve(key)
        store.rewind(run.id, 5, "token")
        channel._serve(key, starts=True)
        add(8, 2.0)
        store.log(run.id, [], [], {"status": Status.FINISHED})
        channel._serve(key)
        channel._serve(key)
        points = stored(store, key)
    *earlier, sent = sorted(all_of(kind, location, key), key=lambda run: run.status == "finished")
    assert (sent.points, sent.doubles, sent.status) == (points, [], "finished")
    assert {iteration for _, iteration in points} == {0, 5, 8}
    assert [(sorted(at for _, at in run.points), run.status) for run in earlier] == (
        [] if kind == "tensorboard" else [([0, 5, 10], "interrupted")]
    )


def test_non_finite_numbers_arrive(kind, location, tmp_path, tiny):
    config = resolve(Catalog(), "adding", "rnn", tiny | {"learning_rate": "1e30"})
    points = train_to(config, tmp_path, f"{kind}:{location}")
    assert not all(map(math.isfinite, points.values()))
    sent = read_back(kind, location, config.spec.key)
    assert sent.status == "diverged"
    assert sent.points.keys() == points.keys()
    for at, value in as_sent(kind, points).items():
        largest = math.inf if kind != "mlflow" else 1.7976931348623157e308
        assert repr(sent.points[at]) == repr(max(-largest, min(largest, value)) if value == value else value)


class Failing:
    """A destination that fails at a step: "open" or "add"."""

    def __init__(self, step):
        self.step = step

    def open(self, *_):
        if self.step == "open":
            raise RuntimeError("broken at http://user:hidden@host/x")
        return self

    def add(self, *_):
        raise OSError(28, "No space left on device")

    def end(self, *_):
        raise OSError(28, "No space left on device")


@pytest.mark.parametrize("step", ["import", "open", "add"])
def test_failure_gives_one_warning_and_stops_nothing(config, tmp_path, monkeypatch, caplog, step):
    def open_failing(target):
        if step == "import":
            raise ImportError("No module named 'missing'")
        return Failing(step)

    monkeypatch.setattr(Target, "open", open_failing)
    (tmp_path / "without").mkdir()
    with caplog.at_level(logging.WARNING, logger="orthobench"):
        points = train_to(config, tmp_path, f"tensorboard:{tmp_path / 'logs'}")
    (warning,) = caplog.messages
    assert "orthobench db export --to tensorboard" in warning
    assert "hidden" not in warning
    monkeypatch.undo()
    assert points == train_to(config, tmp_path / "without")


def test_unreachable_server_gives_one_warning_without_its_password(config, tmp_path, caplog):
    pytest.importorskip("mlflow", reason="the extra orthobench[mlflow] is not installed")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with caplog.at_level(logging.WARNING):
        assert train_to(config, tmp_path, f"mlflow:http://user:hidden@127.0.0.1:{port}")
    (warning,) = caplog.messages
    assert "receives nothing more" in warning
    assert "hidden" not in caplog.text


def test_hanging_destination_is_abandoned(config, tmp_path, monkeypatch, caplog):
    pytest.importorskip("mlflow", reason="the extra orthobench[mlflow] is not installed")
    monkeypatch.setattr(live, "CLOSE_SECONDS", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent, caplog.at_level(logging.WARNING):
        assert train_to(config, tmp_path, f"mlflow:http://127.0.0.1:{silent.getsockname()[1]}")
    (warning,) = caplog.messages
    assert "not everything was sent within 0.2 s" in warning


def test_destination_that_fails_after_being_abandoned_warns_once(tmp_path, caplog):
    with open_store(str(tmp_path / "r.db"), create=True) as store:
        (channel,) = LiveSinks(store, [Target("tensorboard", Location("runs"))]).channels
    with caplog.at_level(logging.WARNING):
        channel.warn("not everything was sent within 30 s")
        channel.warn("connection refused")
    assert [message.count("30 s") for message in caplog.messages] == [1]
