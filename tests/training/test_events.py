"""A run's events: every sink receives all of them, with every row, in this process and through a worker's messages."""

from __future__ import annotations

import pickle
from typing import Any

import pytest
import torch

from orthobench.executors.profile import profile_run
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import Status, open_store
from orthobench.training.build import build_trainer
from orthobench.training.events import EventSink, Relay
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")


class Recorder(EventSink):
    """Keeps every event, and asks to stop at an iteration."""

    def __init__(self, stop_at: int | None = None) -> None:
        self.stop_at = stop_at
        self.starts: list[Any] = []
        self.resumed_at: list[int] = []
        self.iterations: list[int] = []
        self.evaluations: list[Any] = []
        self.ends: list[Any] = []

    def on_start(self, start):
        self.starts.append(start)

    def on_resume(self, iteration):
        self.resumed_at.append(iteration)

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def on_evaluation(self, evaluation):
        self.evaluations.append(evaluation)

    def on_end(self, end):
        self.ends.append(end)

    def should_stop(self):
        return bool(self.iterations) and self.iterations[-1] == self.stop_at


class Pickled(Relay):
    """Keeps the events as bytes, as a worker sends them."""

    def __init__(self) -> None:
        self.messages: list[bytes] = []

    def relay(self, event, *content):
        self.messages.append(pickle.dumps((event, *content)))


@pytest.fixture
def config(tiny):
    return resolve(Catalog(), "adding", "scornn", tiny)


def train_with(config, folder, *sinks, should_stop=lambda: False):
    with open_store(str(folder / "r.db"), create=True) as store:
        run = train(config, store, RunOptions(device="cpu"), sinks, should_stop)
        return run, store.metrics([run.id]), store.traces([run.id])


def test_sink_receives_every_row_and_vector_of_the_database(config, tmp_path):
    sink = Recorder()
    run, metrics, vectors = train_with(config, tmp_path, sink)
    received = {(row.split, row.name, row.iteration): row.value for event in sink.evaluations for row in event.rows}
    assert received == {(row.split, row.name, row.iteration): row.value for row in metrics}
    assert {split for split, _, _ in received} == {"train", "test", "probe"}
    received = {(row.name, row.iteration): list(row.values) for event in sink.evaluations for row in event.vectors}
    assert received == {(row.name, row.iteration): list(row.values) for row in vectors}
    assert received
    assert (sink.starts[0].key, sink.starts[0].parameter_count) == (run.key, run.parameter_count)
    assert sink.iterations == list(range(1, run.total_iterations + 1))
    assert [(end.status, end.progress.best_value) for end in sink.ends] == [(Status.FINISHED, run.best_value)]


def test_worker_messages_carry_the_same_events(config, tmp_path):
    direct, relay, replayed = Recorder(), Pickled(), Recorder()
    train_with(config, tmp_path, direct, relay)
    for message in relay.messages:
        event, *content = pickle.loads(message)
        getattr(replayed, event)(*content)
    assert vars(replayed) == vars(direct)


def test_resumed_run_reports_its_start_to_its_sinks(config, tmp_path):
    first, second = Recorder(stop_at=6), Recorder()
    with pytest.raises(Interrupted):
        train_with(config, tmp_path, first, should_stop=first.should_stop)
    assert [end.status for end in first.ends] == [Status.INTERRUPTED]
    train_with(config, tmp_path, second)
    assert (first.resumed_at, second.resumed_at) == ([-1], [5])  # the stop cut off the evaluation of iteration 6
    assert second.iterations[0] == 7


def test_exception_of_a_sink_fails_the_run(config, tmp_path):
    class Broken(EventSink):
        def on_evaluation(self, evaluation):
            raise RuntimeError("no space left in the exporter")

    with pytest.raises(RuntimeError, match="no space left in the exporter"):
        train_with(config, tmp_path, Broken())
    with open_store(str(tmp_path / "r.db")) as store:
        (run,) = store.runs()
    assert run.status == Status.FAILED
    assert run.message.endswith(" raises RuntimeError: no space left in the exporter")


def test_trainer_and_profile_need_no_database(config, tmp_path, monkeypatch):
    def refuse(*_arguments, **_options):
        raise AssertionError("a database was opened")

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("orthobench.store.open.create_engine", refuse)
    trainer = build_trainer(config, CPU)
    trainer.advance()
    assert trainer.state.iteration == 1
    assert profile_run(config).seconds_per_iteration > 0
    assert list(tmp_path.iterdir()) == []
