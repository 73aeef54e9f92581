"""What a task measures once, at the end of a run."""

from __future__ import annotations

import pytest
import torch
from orthobench.tasks.adding import Adding

from orthobench.plugins import Catalog
from orthobench.spec import resolve
from orthobench.store import Status, open_store
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted


class Concluding(Adding):
    """Reports three pieces of work, and counts its calls."""

    calls = 0

    def final_metrics(self, model, report):
        type(self).calls += 1
        assert not model.training
        for done in (1, 2, 3):
            report(done, 3)
        return {"at_the_end": 7.0}


class Watching(EventSink):
    stop_at: int | None = None

    def __init__(self):
        self.seen, self.iterations = [], []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def on_final_metrics(self, done, total):
        self.seen.append((done, total))


@pytest.fixture
def run(tmp_path, tiny):
    config = resolve(Catalog(), "adding", "rnn", tiny)
    object.__setattr__(config, "task_class", Concluding)

    def carry_out(observer, should_stop=lambda: False):
        with open_store(str(tmp_path / "r.db"), create=True) as store:
            folder = CheckpointFolder(tmp_path / "c", config.spec.key)
            try:
                train(config, store, folder, torch.device("cpu"), sinks=[observer], should_stop=should_stop)
            finally:
                record = store.find(config.spec.key)
                rows = [(m.iteration, m.value) for m in store.metrics([record.id]) if m.name == "at_the_end"]
            return record.status, rows

    return carry_out


def test_it_is_logged_once(run):
    observer = Watching()
    assert run(observer) == (Status.FINISHED, [(12, 7.0)])
    assert observer.seen == [(1, 3), (2, 3), (3, 3)]
    calls = Concluding.calls
    assert run(Watching()) == (Status.FINISHED, [(12, 7.0)])
    assert Concluding.calls == calls


def test_a_stop_in_between_loses_no_iteration(run):
    observer = Watching()
    with pytest.raises(Interrupted):
        run(observer, lambda: observer.seen == [(1, 3), (2, 3)])
    again = Watching()
    assert run(again) == (Status.FINISHED, [(12, 7.0)])
    assert again.iterations == []
