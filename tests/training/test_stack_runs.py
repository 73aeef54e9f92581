"""Runs of stacks with dropout and batch statistics: resumed, recorded, kept, loaded, exported, matched."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import torch

import orthobench as ob
from orthobench.errors import UsageError
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import open_store
from orthobench.training.events import EventSink
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")
STACK = {"layers": "2", "block": "residual", "block_size": "6", "block_norm": "batch", "dropout": "0.2"}
KEEPING = ob.RunOptions(device="cpu", keep_weights="both")


class StopAt(EventSink):
    """Asks to stop after an iteration."""

    def __init__(self, last: int) -> None:
        self.last, self.iteration = last, -1

    def on_iteration(self, iteration: int) -> None:
        self.iteration = iteration

    def should_stop(self) -> bool:
        return self.iteration == self.last


@pytest.fixture
def config(tiny: dict[str, str]) -> RunConfig:
    return resolve(Catalog(), "adding", "scornn", tiny | STACK)


def rows_of(folder: Path, config: RunConfig, stops: tuple[int, ...] = ()) -> list[Any]:
    """The rows of a run that stops after these iterations and resumes."""
    with open_store(str(folder / "r.db"), create=True) as store:
        for stop in (*stops, -2):
            sink = StopAt(stop)
            with suppress(Interrupted):
                train(config, store, RunOptions(device="cpu", checkpoint_every=0), [sink], sink.should_stop)
        run = store.find(config.spec.key)
        assert run is not None
        return [(row.split, row.name, row.iteration, row.value) for row in store.metrics([run.id])]


def test_resumed_run_ends_with_the_numbers_of_an_uninterrupted_one(config: RunConfig, tmp_path: Path) -> None:
    """Dropout goes on in its stream of random numbers, and the statistics are in the checkpoint."""
    (tmp_path / "cut").mkdir()
    assert rows_of(tmp_path / "cut", config, stops=(3, 6)) == rows_of(tmp_path, config)


def test_kept_weights_include_statistics_and_test_without_dropout(tiny: dict[str, str], tmp_path: Path) -> None:
    database = str(tmp_path / "r.db")
    run = ob.run("adding", "lstm", db=database, settings=tiny | STACK, options=KEEPING)
    trained = ob.load_model(run, database, weights="last")
    statistics = [tensor for name, tensor in trained.model.state_dict().items() if name.endswith("norm.mean")]
    assert len(statistics) == 2
    assert all(tensor.abs().max() > 0 for tensor in statistics)
    for _ in range(2):
        (metric,) = ob.evaluate(run, db=database, weights="last").metrics
        assert metric.value == metric.stored == run.final_value
    inputs = trained.task.test.batch(torch.arange(3)).inputs
    assert torch.equal(trained(inputs), trained(inputs))


@pytest.mark.slow
def test_stack_is_exported(tiny: dict[str, str], tmp_path: Path) -> None:
    database, file = str(tmp_path / "r.db"), tmp_path / "stack.pt2"
    run = ob.run("adding", "scornn", db=database, settings=tiny | STACK, options=KEEPING)
    trained = ob.load_model(run, database)
    inputs = trained.task.test.batch(torch.arange(4)).inputs
    exported = ob.export(run, file, "pt2", db=database, steps=len(inputs), batch=4)
    assert exported.outputs == (4, 1)
    program = torch.export.load(file).module()
    torch.testing.assert_close(program(inputs), trained(inputs), rtol=1e-4, atol=1e-5)


def test_probes_do_not_change_statistics_and_random_numbers(config: RunConfig) -> None:
    from orthobench.training.evaluator import Evaluator
    from orthobench.training.trainer import Trainer

    trainer = Trainer(config, config.task_class(config.task_settings, 0, CPU), CPU)
    trainer.advance()
    before = {name: tensor.clone() for name, tensor in trainer.model.state_dict().items()}
    random = torch.get_rng_state()
    Evaluator(trainer).evaluate(probe=True)
    assert torch.equal(torch.get_rng_state(), random)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.model.state_dict().items())
    assert trainer.model.training


def test_layer_has_no_blocks() -> None:
    from orthobench.nn import ScoRNN

    with pytest.raises(UsageError, match="block is a setting of whole models: give num_layers"):
        ScoRNN(3, 8, block="residual")
