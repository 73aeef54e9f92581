"""What every probe plugin must do."""

from __future__ import annotations

from typing import Any

import torch

from orthobench.plugins import Catalog
from orthobench.probe import Reading, Subject
from orthobench.testing.require import require

BATCH = 3


def _subject() -> Subject:
    """A small LSTM, which has two states, on the adding problem."""
    catalog = Catalog()
    task_class, model_class = catalog.load("task", "adding"), catalog.load("model", "lstm")
    settings = task_class.Settings.read({"sequence_length": 6, "train_size": BATCH, "test_size": BATCH})
    task = task_class(settings, 0, torch.device("cpu"))
    small = model_class.Settings.read({"hidden_size": 4})
    model = model_class(small, task.signature, torch.Generator().manual_seed(0))
    return Subject(model, task, task.train.batch(torch.arange(BATCH)))


def _entries(reading: Reading) -> dict[str, list[float]]:
    entries = {f"value {name}": [value] for name, value in reading.values.items()}
    return entries | {f"vector {name}": list(vector) for name, vector in reading.vectors.items()}


def readings_are_finite_numbers(probe_class: Any) -> None:
    """Of a model in good health a probe finds something, all of it finite numbers."""
    entries = _entries(probe_class()(_subject()))
    require(bool(entries), "it finds nothing")
    for name, numbers in entries.items():
        require(all(isinstance(number, int | float) for number in numbers), f"{name} holds more than numbers")
        require(bool(torch.tensor(numbers).isfinite().all()), f"{name} is not finite")


def the_same_model_reads_the_same(probe_class: Any) -> None:
    """Twice the same subject gives the same numbers, by one probe or by two."""
    subject, probe = _subject(), probe_class()
    first = _entries(probe(subject))
    require(first == _entries(probe(subject)), "the second reading is another")
    require(first == _entries(probe_class()(subject)), "another probe of the class reads otherwise")


def the_model_is_left_alone(probe_class: Any) -> None:
    """Parameters, gradients, mode and torch's random stream are as before."""
    subject = _subject()
    before = {name: value.clone() for name, value in subject.model.state_dict().items()}
    stream = torch.get_rng_state()
    probe_class()(subject)
    require(all(torch.equal(value, before[name]) for name, value in subject.model.state_dict().items()), "it trains")
    require(all(parameter.grad is None for parameter in subject.model.parameters()), "it leaves gradients behind")
    require(subject.model.training, "it leaves the model in evaluation mode")
    require(bool((torch.get_rng_state() == stream).all()), "it draws from torch's global generator")


def the_schedule_is_one(probe_class: Any) -> None:
    """`every_epochs` is a whole number from 0."""
    every = probe_class.every_epochs
    require(isinstance(every, int) and every >= 0, f"every_epochs is {every!r}")


CHECKS = (
    readings_are_finite_numbers,
    the_same_model_reads_the_same,
    the_model_is_left_alone,
    the_schedule_is_one,
)
