"""The checks of task plugins."""

from __future__ import annotations

from typing import Any, cast

import torch

from orthobench.model import ModelSettings
from orthobench.task import Batch, Stream, Task, TrainingSettings
from orthobench.testing.require import no_global_draws, require, require_apart

BATCH = 5


def _settings(task_class: Any) -> Any:
    """The quick settings, with as little data as they allow."""
    fields = task_class.Settings.model_fields
    values = {name: value for name, value in task_class.quick.items() if name in fields}
    small = {name: 2 * BATCH for name in ("train_size", "validation_size", "test_size") if name in fields}
    return task_class.Settings.read(values | small)


def _make(task_class: Any, seed: int = 1) -> Task:
    task: Task = task_class(_settings(task_class), seed, torch.device("cpu"))
    return task


def _first(split: Any) -> Batch:
    batch: Batch = split.batch(torch.arange(BATCH))
    return batch


def _outputs(task: Task, batch: Batch) -> torch.Tensor:
    signature, time = task.signature, batch.inputs.shape[0]
    shape = (BATCH, signature.output_size) if signature.readout == "last" else (time, BATCH, signature.output_size)
    return torch.zeros(shape, requires_grad=True)


def settings_have_names_of_their_own(task_class: Any) -> None:
    """No setting is called as one of the training or common model settings, and presets set only what exists."""
    require_apart(task_class.Settings.model_fields, TrainingSettings.model_fields, "the training")
    require_apart(task_class.Settings.model_fields, ModelSettings.model_fields, "every model")
    strange = set(task_class.protocol) - set(TrainingSettings.model_fields)
    require(not strange, f"protocol sets {', '.join(sorted(strange))}, which is no training setting")
    TrainingSettings.read(task_class.protocol)


def batches_fit_the_signature(task_class: Any) -> None:
    """Inputs are finite, `[T, B, m]`, and a batch has its examples in the requested order."""
    task = _make(task_class)
    for split in filter(None, (task.train, task.validation, task.test)):
        require(len(split) >= BATCH, f"a split holds {len(split)} examples")
        inputs = _first(split).inputs
        shape = [inputs.shape[0], BATCH, task.signature.input_size]
        require(list(inputs.shape) == shape, f"inputs are {list(inputs.shape)}, not [T, B, m] = {shape}")
        require(bool(inputs.isfinite().all()), "inputs are not finite")
        turned = split.batch(torch.arange(BATCH).flip(0)).inputs
        require(torch.equal(turned, inputs.flip(1)), "a batch does not have its examples in the requested order")


def the_seed_makes_the_data(task_class: Any) -> None:
    """The same seed gives the same data, training and test data differ, and no global generator is used."""
    with no_global_draws("__init__"):
        task, twin = _make(task_class), _make(task_class)
    with no_global_draws("batch"):
        _first(task.train)
    for first, second in ((task.train, twin.train), (task.test, twin.test)):
        require(torch.equal(_first(first).inputs, _first(second).inputs), "the same seed gives other inputs")
        require(torch.equal(_first(first).targets, _first(second).targets), "the same seed gives other targets")
    require(not torch.equal(_first(task.train).inputs, _first(task.test).inputs), "training and test data are the same")


def the_loss_can_be_minimised(task_class: Any) -> None:
    """The loss is one finite number with a gradient."""
    task = _make(task_class)
    batch = _first(task.train)
    outputs = _outputs(task, batch)
    loss = task.loss(outputs, batch.targets)
    require(loss.dim() == 0 and bool(loss.isfinite()), "the loss is not one finite number")
    loss.backward()
    gradient = outputs.grad
    require(gradient is not None and bool(gradient.isfinite().all() and gradient.any()), "the loss has no gradient")


def metrics_add_up(task_class: Any) -> None:
    """The task's metrics are measured and have baselines; every one is the same in one batch or in two."""
    task, settings = _make(task_class), _settings(task_class)
    names = [metric.name for metric in task_class.metrics]
    require(bool(names), "no metric is declared: set metrics = (Metric(...), ...), the main one first")
    require(len(names) == len(set(names)), f"a metric is declared twice: {', '.join(names)}")
    batch = _first(task.test)
    outputs = _outputs(task, batch).detach()
    axis = 0 if task.signature.readout == "last" else 1

    def measured(parts: list[tuple[int, int]]) -> dict[str, float]:
        """Return the metrics over these parts of the batch, each a first example and a number of them."""
        totals = [
            task.measure(outputs.narrow(axis, start, size), task.test.batch(torch.arange(start, start + size)).targets)
            for start, size in parts
        ]
        sums = {name: [sum(float(part[name][i]) for part in totals) for i in (0, 1)] for name in totals[0]}
        return task.summarise({name: total / weight for name, (total, weight) in sums.items()})

    whole, joined = measured([(0, BATCH)]), measured([(0, 2), (2, BATCH - 2)])
    undeclared = sorted(whole.keys() - set(names))
    require(not undeclared, f"{', '.join(undeclared)} is measured but not declared: add it to metrics")
    for name in filter(None, (names[0], task_class.divergence_metric())):
        require(name in whole, f"{name} is not measured: {sorted(whole)}")
        require(name in task.baselines(settings), f"there is no baseline of {name}")
    for name, value in whole.items():
        require(abs(joined[name] - value) < 1e-5, f"{name} depends on the size of the test batches")


def streams_have_columns(task_class: Any) -> None:
    """If the task carries the state, its splits can be read in columns; the first does not depend on the others."""
    if not task_class.carries_state:
        return
    task = _make(task_class)
    for split in filter(None, (task.train, task.validation, task.test)):
        stream = cast(Stream, split)
        require(stream.pieces(2) <= stream.pieces(1), "two columns make more pieces than one")
        first, last = (stream.piece(position, 1).inputs for position in (0, stream.pieces(1) - 1))
        require(stream.pieces(1) == 1 or not torch.equal(first, last), "all pieces are the same")
        for position in range(min(2, stream.pieces(BATCH))):
            single, several = stream.piece(position, 1).inputs, stream.piece(position, BATCH).inputs
            shape = [len(several), BATCH, task.signature.input_size]
            require(list(several.shape) == shape, f"a piece is {list(several.shape)}, not [T, B, m] = {shape}")
            require(torch.equal(several[:, 0], single[: len(several), 0]), f"piece {position} is not its column's")


CHECKS = (
    settings_have_names_of_their_own,
    batches_fit_the_signature,
    the_seed_makes_the_data,
    the_loss_can_be_minimised,
    metrics_add_up,
    streams_have_columns,
)
