"""Validation data of generated tasks: a stream of their own, of training lengths, with no effect on other data."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from orthobench.plugins import Catalog
from orthobench.spec.resolve import resolve
from orthobench.task import SyntheticSettings

CPU = torch.device("cpu")
CATALOG = Catalog()
LONG: dict[str, dict[str, Any]] = {
    "adding": {"sequence_length": 20},
    "context_free": {"shortest": 30, "longest": 40, "test_shortest": 42, "test_longest": 50},
    "copying": {"sequence_length": 5},
    "formal_language": {"shortest": 15, "longest": 20, "test_shortest": 25, "test_longest": 30},
    "group_word": {"shortest": 15, "longest": 20, "test_shortest": 25, "test_longest": 30},
    "selective_copying": {"sequence_length": 60},
    "xor_stream": {"pad_size": 40, "data_seed": "run"},
}
"""Settings of tasks whose defaults are too long for a test, or so short that two sequences are equal by accident."""
OWN = "fitzhugh_nagumo"
"""The task whose program has validation data."""
TASKS = [
    plugin.name
    for plugin in CATALOG
    if plugin.kind == "task" and plugin.is_built_in and issubclass(plugin.load().Settings, SyntheticSettings)
    if plugin.name != OWN
]
SIZES = {"train_size": 60, "test_size": 40}


def task_of(name: str, seed: int = 0, **settings):
    config = resolve(CATALOG, name, "rnn", {**LONG.get(name, {}), **SIZES, **settings}, published=False)
    return config.task_class(config.task_settings, seed, CPU)


LEAST = 12
"""The length from which on two random sequences are the same only if they are the same draw."""


def sequences(split) -> set[str]:
    """The long sequences of a split."""
    batch = split.batch(torch.arange(len(split)))
    lengths = [len(batch.inputs)] * len(split) if batch.lengths is None else batch.lengths.tolist()
    return {str(batch.inputs[:length, number].tolist()) for number, length in enumerate(lengths) if length >= LEAST}


@pytest.mark.parametrize("name", TASKS)
def test_validation_test_and_training_data_are_disjoint(name):
    task = task_of(name, validation_size=40)
    train, validation, test = (sequences(split) for split in (task.train, task.validation, task.test))
    assert len(task.validation) == 40
    assert len(validation) > 10
    assert not validation & test
    assert not validation & train
    assert not validation & sequences(task_of(name, seed=1, validation_size=40).validation)


@pytest.mark.parametrize("name", TASKS)
def test_other_data_and_the_key_stay_as_they_are_without_it(name):
    without, with_some = task_of(name), task_of(name, validation_size=40)
    assert without.validation is None
    for part in ("train", "test"):
        assert sequences(getattr(without, part)) == sequences(getattr(with_some, part))
    config = resolve(CATALOG, name, "rnn", {"validation_size": 0})
    assert config.spec.key == resolve(CATALOG, name, "rnn", {}).spec.key
    assert "validation_size" not in config.spec.task_settings
    assert "judged_by" not in config.spec.training


@pytest.mark.parametrize("name", ["formal_language", "group_word"])
def test_validation_has_the_lengths_of_training(name):
    batch = task_of(name, validation_size=40).validation.batch(torch.arange(40))
    form = 0 if name == "group_word" else 1  # an end symbol
    assert batch.lengths.min() >= 15
    assert batch.lengths.max() <= 20 + form
    assert batch.lengths.unique().numel() > 2


def test_program_of_xor_stream_gets_validation_data_of_its_own():
    task = task_of("xor_stream", validation_size=40, data_seed="program")
    assert not sequences(task.validation) & (sequences(task.train) | sequences(task.test))
