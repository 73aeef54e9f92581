"""A task's validation split is evaluated next to the test split; its epoch is the trainer's; runs stay resumable."""

from __future__ import annotations

import math

import pytest
import torch

from orthobench.errors import UsageError
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.store import open_store
from orthobench.task import seeded_generator
from orthobench.tasks.adding import Adding, AddingSplit
from orthobench.tasks.cifar10 import CIFAR10
from orthobench.training.evaluator import Evaluator
from orthobench.training.lifecycle import train
from orthobench.training.loop import Interrupted

CPU = torch.device("cpu")


def logged(config, folder, should_stop=lambda: False):
    folder.mkdir(exist_ok=True)
    with open_store(str(folder / "r.db"), create=True) as store:
        run = train(config, store, RunOptions(device="cpu"), should_stop=should_stop)
        return {(row.split, row.name, row.iteration): row.value for row in store.metrics([run.id])}


def with_validation(self, settings, seed, device, start=Adding.__init__):
    start(self, settings, seed, device)
    self.validation = AddingSplit(settings, settings.test_size, seeded_generator(seed, "adding", "test"), device)


def test_validation_is_logged_and_changes_nothing_else(tiny, tmp_path, monkeypatch):
    config = resolve(Catalog(), "adding", "rnn", tiny)
    plain = logged(config, tmp_path / "plain")
    assert not [key for key in plain if key[0] == "valid"]

    monkeypatch.setattr(Adding, "__init__", with_validation)
    both = logged(config, tmp_path / "both")
    valid = {(name, iteration): value for (split, name, iteration), value in both.items() if split == "valid"}
    assert valid == {(name, iteration): value for (split, name, iteration), value in both.items() if split == "test"}
    assert {key: value for key, value in both.items() if key[0] != "valid"} == plain


def test_fresh_noise_of_an_epoch_survives_an_interruption(small_data, tmp_path, monkeypatch):
    sizes = {"train_size": 40, "test_size": 10, "batch_size": 10, "epochs": 2, "hidden_size": 4}
    config = resolve(Catalog(), "cifar10", "rnn", {"noise_padded": "true", **sizes})
    whole = logged(config, tmp_path / "whole")
    calls = iter(range(1, 100))
    with pytest.raises(Interrupted):
        logged(config, tmp_path / "cut", lambda: next(calls) == 6)  # in the second epoch
    assert logged(config, tmp_path / "cut") == whole

    epochs = []
    monkeypatch.setattr(CIFAR10, "epoch", property(lambda self: 0, lambda self, epoch: epochs.append(epoch)))
    assert logged(config, tmp_path / "same noise") != whole
    probed = [0]  # always in the first epoch
    assert epochs == probed + [0] * 4 + probed + [1] * 4 + probed


@pytest.mark.parametrize("cut_after", [9, 12, 15])
def test_learning_rates_fall_on_a_plateau_of_validation(tiny, tmp_path, monkeypatch, rates, cut_after):
    """As in the nnRNN program: `if valid < best: best = valid`, `else: rate /= 2`, after every epoch."""
    valid = {0: 0.5, 4: 1.0, 8: 0.8, 12: 0.9, 16: 0.8, 20: math.nan, 24: 0.7}
    measured = Evaluator.measure

    def scripted(self, split, max_batches=None, scores=None):
        metrics = measured(self, split, max_batches, scores)
        if split is self.task.validation:
            return metrics | {
                "mse": valid.get(self.trainer.state.iteration, 0.1)
            }  # 0.1 within an epoch, where nothing is judged
        return metrics

    monkeypatch.setattr(Adding, "__init__", with_validation)
    monkeypatch.setattr(Evaluator, "measure", scripted)
    settings = tiny | {"epochs": "7", "plateau_decay": "0.5", "learning_rate": "0.01"}
    config = resolve(Catalog(), "adding", "lstm", settings)
    with pytest.raises(Interrupted):
        logged(config, tmp_path, lambda: len(rates) == cut_after)
    logged(config, tmp_path)
    assert rates == [0.01] * 12 + [0.005] * 4 + [0.0025] * 4 + [0.00125] * 8


def test_plateau_without_validation_is_refused(tiny, tmp_path):
    with pytest.raises(UsageError, match="adding has no validation data"):
        logged(resolve(Catalog(), "adding", "rnn", tiny | {"plateau_decay": "0.5"}), tmp_path)
    with open_store(str(tmp_path / "r.db")) as store:
        assert store.runs() == []
