"""The checks of task plugins."""

from __future__ import annotations

from typing import Any, cast

import torch

from orthobench.model import ModelSettings
from orthobench.sequences import valid_steps
from orthobench.task import PROTOCOL_OF_MODELS, Batch, Stream, Task, TrainingSettings, loss_of, means_of, measured
from orthobench.testing.require import no_global_draws, require, require_apart
from orthobench.training.by_length import lengths_and_scores

BATCH = 5


def _settings(task_class: Any) -> Any:
    """Return the quick settings, with as little data as they allow."""
    fields = task_class.Settings.model_fields
    values = {name: value for name, value in task_class.quick.items() if name in fields}
    small = {name: 2 * BATCH for name in ("train_size", "validation_size", "test_size") if name in fields}
    return task_class.Settings.read(values | small)


def _make(task_class: Any, seed: int = 1) -> Task:
    task: Task = task_class(_settings(task_class), seed, torch.device("cpu"))
    return task


def _first(split: Any) -> Batch:
    return Batch.of(split, torch.arange(BATCH))


def _zeros(task: Task, batch: Batch) -> torch.Tensor:
    """Return zeros in the shape that the signature prescribes for the outputs of a batch."""
    answers = 1 if batch.positions is None else len(batch.positions)
    steps, size = batch.inputs.shape[:2]
    return torch.zeros(task.signature.output_shape(steps, size, answers))


def _noise(task: Task, batch: Batch) -> torch.Tensor:
    return torch.randn(_zeros(task, batch).shape, generator=torch.Generator().manual_seed(2))


def _columns(task: Task, outputs: torch.Tensor, start: int, batch: Batch) -> torch.Tensor:
    """Select, from outputs for many examples, the outputs for the examples of a batch, which begins at `start`.

    The batch may have fewer steps or answers, because a task may cut padding that no sequence of the batch needs.
    """
    size = batch.inputs.shape[1]
    if outputs.dim() == 2:
        return outputs[start : start + size]
    return outputs[: len(_zeros(task, batch)), start : start + size]


def settings_have_names_of_their_own(task_class: Any) -> None:
    """No setting is named like a setting of training or of every model, and the protocol is valid."""
    require_apart(task_class.Settings.model_fields, TrainingSettings.model_fields, "training")
    require_apart(task_class.Settings.model_fields, ModelSettings.model_fields, "every model")
    require(not (wrong := task_class.wrong_attribute()), wrong)
    of_models = {name: value for name, value in task_class.protocol.items() if name in PROTOCOL_OF_MODELS}
    TrainingSettings.read({name: value for name, value in task_class.protocol.items() if name not in of_models})
    ModelSettings.read(of_models)


def batches_fit_the_signature(task_class: Any) -> None:
    """Inputs have the shape in the signature, and a batch contains its examples in the requested order."""
    task = _make(task_class)
    for split in filter(None, (task.train, task.validation, task.test)):
        require(len(split) >= BATCH, f"a split holds {len(split)} examples")
        batch = _first(split)
        _check_inputs(task, batch)
        _check_lengths(task, batch)
        turned = Batch.of(split, torch.arange(BATCH).flip(0))
        for name in ("inputs", "lengths", "positions"):
            straight, reverse = getattr(batch, name), getattr(turned, name)
            if straight is not None:
                axis = 0 if name == "lengths" else 1
                is_same = reverse is not None and torch.equal(reverse, straight.flip(axis))
                require(is_same, f"a batch does not have the {name} of its examples in the requested order")


def _check_inputs(task: Task, batch: Batch) -> None:
    """Check that inputs are finite features `[T, B, m]`, or symbols `[T, B]`."""
    inputs, m = batch.inputs, task.signature.input_size
    if task.signature.tokens:
        require(inputs.dtype is torch.int64, f"symbols are {inputs.dtype}, not torch.int64")
        require(list(inputs.shape) == [len(inputs), BATCH], f"symbols are {list(inputs.shape)}, not [T, B]")
        least, largest = int(inputs.min()), int(inputs.max())
        require(least >= 0 and largest < m, f"symbols are {least} to {largest}, outside of 0 to {m - 1}")
        return
    shape = [inputs.shape[0], BATCH, m]
    require(list(inputs.shape) == shape, f"inputs are {list(inputs.shape)}, not [T, B, m] = {shape}")
    require(bool(inputs.isfinite().all()), "inputs are not finite")


def _check_lengths(task: Task, batch: Batch) -> None:
    """Check that lengths are `[B]` within the batch's steps, and positions `[A, B]` within the lengths."""
    steps, lengths, positions = len(batch.inputs), batch.lengths, batch.positions
    if lengths is not None:
        require(not task.carries_state, "a task that carries the state has lengths: padding would be in the state")
        require(task.signature.readout != "last", 'readout "last" reads padding: use "last_valid" with lengths')
        require(lengths.dtype is torch.int64, f"lengths are {lengths.dtype}, not torch.int64")
        require(list(lengths.shape) == [BATCH], f"lengths are {list(lengths.shape)}, not [B] = {[BATCH]}")
        within = int(lengths.min()) >= 1 and int(lengths.max()) <= steps
        require(within, f"lengths are not within 1 and the {steps} steps of the inputs")
    require((positions is not None) == (task.signature.readout == "positions"), 'positions are for readout "positions"')
    if positions is not None:
        require(positions.dtype is torch.int64, f"positions are {positions.dtype}, not torch.int64")
        require(
            positions.dim() == 2 and positions.shape[1] == BATCH, f"positions are {list(positions.shape)}, not [A, B]"
        )
        end = torch.full((BATCH,), steps) if lengths is None else lengths
        require(bool(((positions >= 0) & (positions < end)).all()), "positions include invalid steps")


def the_seed_makes_the_data(task_class: Any) -> None:
    """The same seed gives the same data, training data differs from test data, and no global generator is used."""
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
    outputs = _zeros(task, batch).requires_grad_()
    loss = loss_of(task, outputs, batch.targets)
    require(loss.dim() == 0 and bool(loss.isfinite()), "the loss is not one finite number")
    loss.backward()
    gradient = outputs.grad
    require(gradient is not None and bool(gradient.isfinite().all() and gradient.any()), "the loss has no gradient")


def metrics_add_up(task_class: Any) -> None:
    """The metrics of the task are measured and have baselines, and one batch gives the same values as two."""
    task, settings = _make(task_class), _settings(task_class)
    names = [metric.name for metric in task_class.metrics]
    require(bool(names), "no metric is declared: set metrics = (Metric(...), ...), the main one first")
    require(len(names) == len(set(names)), f"a metric is declared twice: {', '.join(names)}")
    batch = _first(task.test)
    outputs = _noise(task, batch)

    def over(ranges: list[tuple[int, int]]) -> dict[str, float]:
        """Return the metrics over these ranges of examples, whose ends are excluded."""
        totals = []
        for start, end in ranges:
            part = Batch.of(task.test, torch.arange(start, end))
            totals.append(measured(task, _columns(task, outputs, start, part), part.targets))
        sums = {
            name: (sum(part[name][0].double() for part in totals), sum(part[name][1] for part in totals))
            for name in totals[0]
        }
        return task.summarise(means_of(sums))

    whole, joined = over([(0, BATCH)]), over([(0, 2), (2, BATCH)])
    undeclared = sorted(whole.keys() - set(names))
    require(not undeclared, f"{', '.join(undeclared)} is measured but not declared: add it to metrics")
    for name in filter(None, (names[0], task_class.divergence_metric())):
        require(name in whole, f"{name} is not measured: {sorted(whole)}")
        require(name in task.baselines(settings), f"there is no baseline of {name}")
    for name, value in whole.items():
        require(abs(joined[name] - value) < 1e-5, f"{name} depends on the size of the test batches")


def padding_does_not_count(task_class: Any) -> None:
    """The loss and the metrics do not depend on the outputs after the end of a sequence."""
    task = _make(task_class)
    if task.signature.readout != "all":
        return  # the model reads only valid steps
    for split in filter(None, (task.train, task.test)):
        batch = _first(split)
        if batch.lengths is None:
            continue
        outputs = _noise(task, batch)
        padding = ~valid_steps(batch.lengths, len(outputs))
        changed = torch.where(padding.unsqueeze(-1), outputs.flip(0) + 1, outputs)
        first, second = (_numbers(task, batch, each) for each in (outputs, changed))
        for name, value in first.items():
            require(_is_near(value, second[name]), f"{name} depends on the outputs after the end of a sequence")


def _numbers(task: Task, batch: Batch, outputs: torch.Tensor) -> dict[str, float]:
    """Return the loss and every metric of a batch."""
    metrics = task.summarise(means_of(measured(task, outputs, batch.targets)))
    return {"the loss": float(loss_of(task, outputs, batch.targets)), **metrics}


def _is_near(value: float, other: float) -> bool:
    return abs(value - other) <= 1e-5 * max(1.0, abs(value))


def the_score_by_length_is_the_metric(task_class: Any) -> None:
    """The mean score is the metric, training lengths are among the declared ones, and bins preserve the order."""
    name = task_class.length_metric
    if name is None:
        return
    declared = [metric.name for metric in task_class.metrics]
    require(name in declared, f"length_metric {name} is not a declared metric: {', '.join(declared)}")
    task, settings = _make(task_class), _settings(task_class)
    batch = _first(task.test)
    outputs = _noise(task, batch)
    lengths, scores = lengths_and_scores(task, outputs, batch)
    mean, metric = float(scores.double().mean()), _numbers(task, batch, outputs)[name]
    require(_is_near(mean, metric), f"the mean score is {mean:.6g}, and {name} is {metric:.6g}")
    bins = task.length_bins(lengths.sort().values)
    is_ordered = bins.shape == lengths.shape and bool((bins.diff() >= 0).all() and (bins >= 0).all())
    require(is_ordered, "length_bins does not give a bin for each length, in the lengths' order")
    shortest, longest = task_class.trained_lengths(settings)
    require(1 <= shortest <= longest, f"trained_lengths gives {shortest} and {longest}")
    trained = _first(task.train)
    steps = torch.tensor([len(trained.inputs)]) if trained.lengths is None else trained.lengths
    within = shortest <= int(steps.min()) and int(steps.max()) <= longest
    require(within, f"training sequences have lengths outside of {shortest} to {longest}")


def streams_have_columns(task_class: Any) -> None:
    """If the task carries the state, its splits can be read in columns, and the first one is independent of others."""
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
    padding_does_not_count,
    the_score_by_length_is_the_metric,
    streams_have_columns,
)
