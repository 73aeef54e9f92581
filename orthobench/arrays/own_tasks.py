"""The tasks of own data: classification, regression and forecast.

Each learns from sequences, or from windows of one long series. A task's class belongs to one file or folder.
"""

from __future__ import annotations

import contextlib
import functools
import math
import warnings
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, cast

import numpy as np
import torch
from pydantic import Field, create_model
from torch import Tensor, nn

from orthobench.arrays.arrange import Array
from orthobench.arrays.own_settings import ClassificationSettings, DataSettings, ForecastSettings, RegressionSettings
from orthobench.arrays.parts import PART_NAMES
from orthobench.arrays.tables import on_one_line
from orthobench.arrays.words import Kind
from orthobench.errors import UsageError, counted
from orthobench.metric import Metric
from orthobench.model import Signature
from orthobench.task import Batch, Split, Task

IGNORED = -100
"""The class number of padding, which torch's cross-entropy leaves out."""
LARGEST_BATCH = 32
"""The usual number of sequences in a batch, unless the data is small."""
MOST_NAMES = 50
"""The most names of features or classes in the line about the data."""


class Part(Split):
    """A part of the data on a device.

    A training batch has as many steps as the longest training sequence, so that its shape never changes. A test batch
    has as many as its own longest sequence.
    """

    def __init__(self, task: DataTask, part: int, device: torch.device) -> None:
        divided = task.divided
        own = divided.parts[part]
        self.task = task
        self.starts, self.lengths, self.numbers = (
            torch.from_numpy(each).to(device) for each in (divided.starts[own], divided.lengths[own], own)
        )
        self.longest = int(divided.lengths[own].max())
        self.keeps_shape = part == 0

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, examples: Tensor) -> Batch:
        starts, lengths = self.starts[examples], self.lengths[examples]
        is_ragged = self.task.is_ragged
        steps = self.longest if self.keeps_shape or not is_ragged else int(lengths.max())
        time = torch.arange(steps, device=starts.device).unsqueeze(1)
        valid = time < lengths
        rows = torch.where(valid, starts + time, 0)
        inputs = self.task.inputs[rows]
        inputs = inputs.masked_fill(~valid.unsqueeze(-1), 0)
        targets = self.task.targets_at(rows, valid, self.numbers[examples])
        return Batch(inputs, targets, lengths if is_ragged else None)


class DataTask(Task):
    """The base class of the tasks of own data.

    Attributes:
        inputs: the scaled features of all steps, `[steps, features]`, and one more column for each feature with gaps, 1
            where it is missing.
        mean, scale: what a feature loses before it is divided by the scale, `[features]`.
        answers: the targets of all steps or sequences, numbers of classes or amounts.
        table: the same on the device, with `padding` where a target is missing.
        by_step: whether each step has a target.
        ahead: by how many steps a target comes after the step that predicts it.
    """

    kind: ClassVar[Kind]
    padding: ClassVar[float]
    """The target of a step of padding."""
    protocol = {"epochs": 30, "optimizer": "adam", "learning_rate": 1e-3, "clip_norm": 1.0}
    quick = {"hidden_size": 64, "epochs": 5, "max_iterations": 1000}

    answers: Array
    output_size: int

    def __init__(self, settings: Any, seed: int, device: torch.device) -> None:
        self.settings, self.sequences, self.divided = settings, settings.sequences, settings.divided
        sequences, lengths, steps = self.sequences, self.divided.lengths, self.sequences.steps
        self.ahead = getattr(settings, "horizon", 0)
        self.by_step = sequences.by_step or self.kind == "forecast"
        self.is_ragged = bool((lengths != lengths[0]).any())
        self.mean, self.scale = np.zeros(1, np.float32), np.ones(1, np.float32)
        if settings.standardise:
            self.mean, self.scale = _mean_and_scale(steps[self.divided.rows(0)])
        scaled = (steps - self.mean) / self.scale
        if (gaps := np.isnan(scaled)).any():
            scaled = np.concatenate([np.where(gaps, 0, scaled), gaps[:, gaps.any(0)]], 1, dtype=np.float32)
        self.inputs = torch.from_numpy(scaled).to(device)
        self.answers = steps if self.kind == "forecast" else sequences.targets
        self.table = torch.from_numpy(np.where(np.isnan(self.answers), self.padding, self.answers)).to(device)
        self.prepare(device)
        readout: Any = "all" if self.by_step else "last_valid" if self.is_ragged else "last"
        self.signature = Signature(scaled.shape[1], self.output_size, readout)
        self.train, self.test = Part(self, 0, device), Part(self, 2, device)
        self.validation = Part(self, 1, device) if len(self.divided.parts[1]) else None

    def prepare(self, device: torch.device) -> None:
        """Set the number of outputs, and what the loss needs."""
        raise NotImplementedError

    def asked(self, part: int) -> Array:
        """Return the targets of a part, for each of its steps or sequences."""
        rows = self.divided.rows(part) + self.ahead if self.by_step else self.divided.parts[part]
        return cast(Array, self.answers[rows])

    def targets_at(self, rows: Tensor, valid: Tensor, numbers: Tensor) -> Tensor:
        """Return the targets of a batch.

        Args:
            rows: the steps in the table of steps, `[time, batch]`.
            valid: which of them are no padding.
            numbers: the numbers of the sequences, `[batch]`.
        """
        if not self.by_step:
            return self.table[numbers]
        targets = self.table[torch.where(valid, rows + self.ahead, 0)]
        return torch.where(valid if targets.dim() == 2 else valid.unsqueeze(-1), targets, self.padding)

    @classmethod
    def remark(cls, settings: Any) -> str:
        """Say in one line what the data is, and how it is divided.

        Raises:
            UsageError: the data cannot be divided.
        """
        sequences, divided = settings.sequences, settings.divided
        low, high = int(sequences.lengths.min()), int(sequences.lengths.max())
        number = counted(sequences.steps.shape[1], "feature")
        if sequences.is_series:
            facts = [f"one series of {high} steps with {number}, in windows of {settings.window}"]
        else:
            steps = f"{low}" if low == high else f"{low} to {high}"
            facts = [f"{counted(len(sequences.lengths), 'sequence')} of {steps} steps with {number}"]
        if sequences.columns:
            is_wide = len(sequences.columns) != sequences.steps.shape[1]
            facts.append(f"{'steps' if is_wide else 'features'}: {_listed(sequences.columns)}")
        if sequences.targets is not None:
            about = [f"target: {sequences.target}"] if sequences.target else []
            if sequences.classes:
                counts = np.bincount(sequences.targets).tolist()
                about.append(f"{len(counts)} classes: {_listed(map(str, counts))} ({_listed(sequences.classes)})")
            facts += [", ".join(about)] if about else []
            facts.append(f"a target for each {'step' if sequences.by_step else 'sequence'}")
        facts.append(", ".join(f"{len(own)} {name}" for own, name in zip(divided.parts, PART_NAMES, strict=True)))
        return f"{settings.kind}:{settings.file_name}: {'; '.join(facts)}"


def _listed(names: Iterable[str]) -> str:
    """Return names in a row, or the first and the last ones of many."""
    texts = list(map(on_one_line, names))
    return ", ".join(texts if len(texts) <= MOST_NAMES else [*texts[: MOST_NAMES - 1], "...", texts[-1]])


def _moments(values: Array) -> tuple[Array, Array]:
    """Return the mean and the variance of each column without missing values, 0 for one without any value."""
    with warnings.catch_warnings(action="ignore", category=RuntimeWarning):  # because a column may have no value
        wide = values.astype(np.float64)
        return np.nan_to_num(np.nanmean(wide, 0)), np.nan_to_num(np.nanvar(wide, 0))


def _mean_and_scale(values: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of each column, 1 for a constant one, in float32."""
    mean, variance = _moments(values)
    deviation = np.sqrt(variance)
    return mean.astype(np.float32), np.where(deviation > 1e-6 * np.abs(mean), deviation, 1).astype(np.float32)


class Classification(DataTask):
    """Loss: mean cross-entropy in nats. Metrics: accuracy, cross-entropy, balanced accuracy and macro F1.

    Balanced accuracy is the mean share of each tested class that is recognised. Macro F1 is the mean of
    2 TP / (2 TP + FP + FN) over the classes that are tested or predicted. The vector `confusion` has the number of
    tested examples of each class that are taken for each class, row by row.
    """

    kind = "classification"
    padding = IGNORED
    title = "classification of own data"
    Settings = ClassificationSettings
    # Graded, because nobody has said that a model can solve these data.
    metrics = (
        Metric("accuracy", "max", is_fraction=True, is_graded=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
        Metric("balanced_accuracy", "max", label="balanced accuracy", is_fraction=True, is_graded=True),
        Metric("macro_f1", "max", label="macro F1", is_fraction=True, is_graded=True),
    )
    loss_metric = "cross_entropy"

    def prepare(self, device: torch.device) -> None:
        self.output_size = len(self.sequences.classes)
        self.class_weights: Tensor | None = None
        if self.settings.class_weights is not None:
            counts = np.bincount(self.asked(0), minlength=self.output_size)
            weights = counts.sum() / (self.output_size * counts.clip(1))
            self.class_weights = torch.from_numpy(np.float32(weights)).to(device)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        weights = self.class_weights
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), weights, ignore_index=IGNORED)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        known = targets != IGNORED
        true, predicted, size = targets[known], outputs.argmax(-1)[known], self.output_size
        nats = nn.functional.cross_entropy(
            outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        pairs = torch.bincount(true * size + predicted, minlength=size**2).reshape(size, size)
        totals = {"accuracy": pairs.trace(), "cross_entropy": nats, "confusion": pairs}
        return {name: (total, float(len(true))) for name, total in totals.items()}

    def summarise(self, means: dict[str, Any]) -> dict[str, float]:
        return {name: value for name, value in means.items() if name != "confusion"} | _by_class(means["confusion"])

    @classmethod
    def baselines(cls, settings: Any) -> dict[str, float]:
        """The test scores of the shares of the classes in the training data, and of the most frequent one."""
        task = cls(settings, 0, torch.device("cpu"))
        counts = np.bincount(task.asked(0), minlength=task.output_size) + 1.0
        tested = task.asked(2)
        confusion = torch.zeros(len(counts), len(counts), dtype=torch.float64)
        confusion[:, counts.argmax()] = torch.from_numpy(np.bincount(tested, minlength=len(counts)).astype(np.float64))
        nats = -np.log(counts / counts.sum())[tested].mean()
        accuracy = float((tested == counts.argmax()).mean())
        return {"accuracy": accuracy, "cross_entropy": float(nats), **_by_class(confusion)}


def _by_class(confusion: Tensor) -> dict[str, float]:
    """Return balanced accuracy and macro F1 from the shares or numbers of pairs of true and predicted classes."""
    right, true, predicted = confusion.diagonal(), confusion.sum(1), confusion.sum(0)
    recall, f1 = right / true, 2 * right / (true + predicted)  # NaN for a class that does not occur
    return {"balanced_accuracy": float(recall.nanmean()), "macro_f1": float(f1.nanmean())}


class Regression(DataTask):
    """Targets are amounts for each sequence, or each step. Loss: mean squared error of the scaled targets.

    Attributes:
        target_mean, target_scale: the scaling of the targets, `[p]`.
        variance: the mean variance of the training targets, or their mean square if they are constant.
    """

    kind: ClassVar[Kind] = "regression"
    padding = math.inf
    title = "regression on own data"
    Settings: ClassVar[type[DataSettings]] = RegressionSettings
    metrics = (
        Metric("mse", "min", label="mean squared error", is_graded=True),  # as above
        Metric("nmse", "min", label="mean squared error / variance"),
    )
    loss_metric = "nmse"

    def prepare(self, device: torch.device) -> None:
        trained = self.asked(0)
        scaling = _mean_and_scale(trained) if self.settings.standardise else (np.zeros(1), np.ones(1))
        self.target_mean, self.target_scale = (torch.from_numpy(np.float32(each)).to(device) for each in scaling)
        self.variance = float(_moments(trained)[1].mean()) or _error(0, trained) or 1.0
        self.output_size = trained.shape[1]

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        known = targets.isfinite()
        errors = torch.where(known, outputs - (targets - self.target_mean) / self.target_scale, 0).square()
        return errors.sum() / known.sum().clamp(min=1)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        known = targets.isfinite()
        predicted = outputs * self.target_scale + self.target_mean
        total = torch.where(known, predicted - targets, 0).square().sum(dtype=torch.float64)
        weight = float(known.sum())
        return {"mse": (total, weight), "nmse": (total / self.variance, weight)}

    @classmethod
    def baselines(cls, settings: Any) -> dict[str, float]:
        """The best test score of predictors without memory for mse, and that of the training mean for nmse."""
        task = cls(settings, 0, torch.device("cpu"))
        divided, asked, expected = task.divided, task.asked(0), task.asked(2)
        for name, values in (("training", asked), ("test", expected)):
            if np.isnan(values).all():
                raise UsageError(f"no target of the {name} data is known: set missing=forward, or give another split")
        last = divided.starts + divided.lengths - 1
        rows = [divided.rows(part) if task.by_step else last[divided.parts[part]] for part in (0, 2)]
        of_mean = _error(_moments(asked)[0], expected)
        errors = [of_mean]
        read, read_in_test = (task.inputs[own].numpy() for own in rows)
        errors.append(_error(_linear(read, asked, read_in_test), expected))
        if cls.kind == "forecast":
            errors.append(_error(read_in_test[:, : task.output_size] * task.scale + task.mean, expected))
        return {"mse": min(errors), "nmse": of_mean / task.variance}


def _error(predicted: Array | float, expected: Array) -> float:
    return float(np.nanmean(np.square(predicted - expected, dtype=np.float64)))


def _linear(read: Array, asked: Array, read_in_test: Array) -> Array:
    """Return the predictions of a linear map with a bias, fitted by least squares to the training data."""
    x, y = (np.column_stack([each, np.ones(len(each))]).astype(np.float64) for each in (read, read_in_test))
    known = ~np.isnan(asked)
    if not known.all():  # each column has its own rows
        columns = zip(asked.T, known.T, strict=True)
        return np.concatenate([_linear(read[own], column[own, None], read_in_test) for column, own in columns], 1)
    return y @ (np.linalg.pinv(x.T @ x) @ (x.T @ asked.astype(np.float64)))


class Forecast(Regression):
    """Targets are the features `horizon` steps later."""

    kind = "forecast"
    title = "forecast of own data"
    Settings = ForecastSettings


TASKS: dict[Kind, type[DataTask]] = {each.kind: each for each in (Classification, Regression, Forecast)}


@functools.cache
def task_of(kind: Kind, name: str, data: str = "", reading: tuple[tuple[str, Any], ...] = ()) -> type[DataTask]:
    """Return the task of a file or folder.

    Args:
        name: the name of the file.
        data: its path; "" if a setting gives it, as in a stored run.
        reading: the settings that say how to read it, for the usual batch size.
    """
    base, usual = TASKS[kind], DataSettings.model_fields["data"]
    field = (str, Field(data, description=usual.description))
    settings = cast(Any, create_model(base.Settings.__name__, __base__=base.Settings, data=field))
    settings.file_name = name
    members: dict[str, Any] = {"__module__": __name__, "__doc__": base.__doc__, "Settings": settings}
    if data:
        members["protocol"] = {**base.protocol, "batch_size": _batch_size(settings, dict(reading))}
    return type(base.__name__, (base,), members)


def _batch_size(settings: Any, reading: Mapping[str, Any]) -> int:
    """Return the usual batch size: a power of two that leaves at least two batches in the training data."""
    with contextlib.suppress(UsageError):  # the run itself will raise it
        count = settings.read(reading).train_size
        return int(min(LARGEST_BATCH, 2 ** (max(1, count // 2).bit_length() - 1)))
    return LARGEST_BATCH
