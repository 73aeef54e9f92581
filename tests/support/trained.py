"""Runs that a test trains, cuts off and reads back."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import torch

import orthobench as ob
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.store import open_store
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted
from orthobench.weights.weights_files import decode

CPU = torch.device("cpu")
KEEPING = ob.RunOptions(device="cpu", keep_weights="both")


class StopAt(EventSink):
    """Asks to stop after an iteration, and keeps the iterations."""

    def __init__(self, last: int = -1) -> None:
        self.last = last
        self.iterations: list[int] = []

    def on_iteration(self, iteration):
        self.iterations.append(iteration)

    def should_stop(self):
        return bool(self.iterations) and self.iterations[-1] == self.last


def train_in(folder, config, stop_at=-1, key=None, **options):
    sink = StopAt(stop_at)
    with open_store(str(folder / "r.db"), create=True) as store:
        how = RunOptions(**{"device": "cpu", "checkpoint_every": 0, "keep_weights": "none", **options})
        with suppress(Interrupted):
            train(config, store, how, [sink], sink.should_stop)
        run = store.find(config.spec.key)
        rows = [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]
    return run, rows, sink.iterations


def rows(database, key):
    with ob.open_results(database) as results:
        run = results.store.get(key)
        metrics = [
            (row.split, row.name, row.epoch, row.iteration, row.value) for row in results.store.metrics([run.id])
        ]
        traces = [(row.name, row.iteration, list(row.values)) for row in results.store.traces([run.id])]
        return metrics, traces


def weights(database, key, kind):
    with ob.open_results(database) as results:
        run = results.store.get(key)
        (record,) = [row for row in results.store.weights([run.id]) if row.kind == kind]
    return record.iteration, decode(
        Path(f"{database}.weights", record.path.real).read_bytes(), str(record.path)
    ).tensors


def kept_run(database, tiny, model="scornn", task="adding", **settings):
    """Train a tiny run that keeps its best and last weights."""
    return ob.run(task, model, db=database, settings=tiny | settings, options=KEEPING)


def few_reflections(model: str) -> dict[str, str]:
    """Return a number of reflections that fits the hidden size, for models with this setting."""
    return {"reflections": "4"} if "reflections" in Catalog().load("model", model).Settings.model_fields else {}
