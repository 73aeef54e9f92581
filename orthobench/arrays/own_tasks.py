"""The tasks of the user's own data: classification, regression and forecast.

| task | target | loss | the best predictor without memory |
| --- | --- | --- | --- |
| classification | a class for each sequence, or each step | cross-entropy in nats | the classes' training shares |
| regression | amounts for each sequence, or each step | squared error | the mean, or a linear map of the step |
| forecast | the features `horizon` steps later | squared error | the same, or the features themselves |

Of several predictors without memory, the best on the test data counts. The linear map reads the step to which the
target belongs, and is fitted by least squares to the training data.

Features, and the targets of a regression or forecast, are scaled by the mean and standard deviation of the training
data. The metric mse is in the units of the file; nmse is mse over the variance of the training targets, so the mean of
these has about 1.

Of sequences, equal shares of each class are test and validation data. One long series is cut into windows instead: the
first part for training, the next for validation, and the last for the test.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, Literal, cast, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, create_model, model_validator
from torch import Tensor, nn

from orthobench.arrays.arrange import Array, Layout, Sequences, Targets, arrange
from orthobench.arrays.own_files import checksum, read_own_data
from orthobench.arrays.words import Kind
from orthobench.data.checksums import with_checksum
from orthobench.errors import UsageError, counted
from orthobench.metric import Metric
from orthobench.model import Signature
from orthobench.settings import CHECKSUM, Settings
from orthobench.task import Batch, Size, Split, Task, seeded_generator

IGNORED = -100
"""The class number of padding, which torch's cross-entropy leaves out."""
PART_NAMES = ("training", "validation", "test")
WINDOW = 100
"""The usual number of steps of a window; a tenth of the series if that is shorter."""
LARGEST_BATCH = 32
"""The usual number of sequences in a batch, unless the data is small."""


class DataSettings(Settings):
    """The settings of all tasks of own data."""

    kind: ClassVar[Kind]
    file_name: ClassVar[str] = ""
    """The name of the file in the name of the task."""

    data: str = Field("", description="file or folder with the data; by default the one in the name of the task")
    data_md5: str | None = Field(None, description="checksum of names and contents; computed from the data unless set")
    layout: Literal["batch_first", "time_first"] | None = Field(
        None, description="first axis of a NumPy array; none: as its shapes say"
    )
    validation_share: float = Field(0.1, ge=0, lt=1, description="share of the data for validation; 0: none")
    test_share: float = Field(0.2, gt=0, lt=1, description="share of the data for the test")
    split_seed: int | None = Field(
        0,
        ge=0,
        description="seed by which sequences are dealt to the parts, the same for all runs; none: in the file's order",
    )
    standardise: bool = Field(
        True, description="scale features and amounts by the mean and standard deviation of the training data"
    )

    @model_validator(mode="before")
    @classmethod
    def _complete(cls, values: dict[str, Any]) -> dict[str, Any]:
        """Fill in the checksum, and the values that follow from the shapes."""
        chosen = {name: _word(values.get(name)) for name in ("layout", "targets")}
        if chosen["layout"] not in (None, *get_args(Layout)) or chosen["targets"] not in (None, *get_args(Targets)):
            return values  # the field's validator explains the error
        place = values.get("data") or cls.model_fields["data"].default
        if not place or Path(str(place)).name != cls.file_name:
            raise ValueError(
                f"data={place}: the task is of {cls.file_name}: write it with its folder, {cls.kind}:FOLDER/FILE"
                if place
                else f"there is no {cls.file_name} here: write it with its folder, {cls.kind}:FOLDER/{cls.file_name}"
            )
        try:
            values = with_checksum({**values, "data": place}, "data", checksum)
            found = open_data(Path(values["data"]), values["data" + CHECKSUM], cls.kind, **chosen)
        except UsageError as error:
            raise ValueError(f"{cls.kind}:{cls.file_name}: {error}") from error
        values["layout"] = found.layout
        if "targets" in cls.model_fields:
            values["targets"] = "step" if found.by_step else "sequence"
        if "window" in cls.model_fields and values.get("window") is None:
            values["window"] = cls._usual_window(len(found.steps), values) if found.is_series else None
        return values

    @classmethod
    def _usual_window(cls, steps: int, values: Mapping[str, Any]) -> int:
        """Return the usual window of a series: a tenth of it, or what leaves two in its smallest part."""

        def share(name: str) -> float:
            try:
                value = float(values.get(name, cls.model_fields[name].default))
            except (TypeError, ValueError):
                return 0.0  # the field's validator explains the error, as it does of a value out of range
            return value if 0 <= value < 1 else 0.0

        ahead = cls.whole(values, "horizon") if "horizon" in cls.model_fields else 0
        window, longest = (
            min(WINDOW, steps // 10),
            _longest_window(steps, share("test_share"), share("validation_share"), ahead),
        )
        return max(2, window if window <= longest else longest // 2)

    @property
    def sequences(self) -> Sequences:
        """The sequences in the data."""
        wanted = getattr(self, "targets", None)
        return open_data(Path(self.data), str(self.data_md5), self.kind, self.layout, wanted)

    @property
    def train_size(self) -> int:
        """The number of training sequences, or of windows.

        Raises:
            UsageError: the data cannot be divided.
        """
        return len(divide(self.sequences, self).parts[0])


def _word(value: Any) -> Any:
    return None if value is None or str(value).lower() == "none" else str(value)


class WindowedSettings(DataSettings):
    """Settings of data that may be one long series."""

    window: int | None = Field(
        None, ge=2, description="steps of a window of one long series; none for other data, which has sequences"
    )


class TargetSettings(WindowedSettings):
    """Settings of data with targets."""

    targets: Literal["sequence", "step"] | None = Field(
        None, description="what has a target; none: as the shapes of the data say"
    )


class ClassificationSettings(TargetSettings):
    kind = "classification"


class RegressionSettings(TargetSettings):
    kind = "regression"


class ForecastSettings(WindowedSettings):
    kind = "forecast"

    horizon: Size = Field(1, description="steps between the last features read and those that are forecast")


@functools.lru_cache(maxsize=4)
def open_data(
    path: Path, md5: str, kind: Kind, layout: Layout | None = None, targets: Targets | None = None
) -> Sequences:
    """Return the sequences in a file or folder with this checksum.

    Raises:
        UsageError: it cannot be read or trained on; one line with the fix.
    """
    return arrange(read_own_data(path), kind, layout, targets)


@dataclass(frozen=True, eq=False)
class Divided:
    """Sequences or windows, and those of each part: training, validation and test.

    Attributes:
        starts, lengths: the first step in the table of steps, and the number of steps, of each, int64 `[N]`.
        parts: the numbers of those of each part, int64.
    """

    starts: NDArray[np.int64]
    lengths: NDArray[np.int64]
    parts: tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]


def divide(sequences: Sequences, settings: DataSettings) -> Divided:
    """Return the sequences, or the windows of a series, divided into three parts.

    Raises:
        UsageError: there are too few for a part.
    """
    ahead = int(getattr(settings, "horizon", 0))
    if sequences.is_series:
        return _windows(sequences, settings, ahead)
    lengths = sequences.lengths - ahead
    if (lengths < 1).any():
        raise UsageError(f"horizon={ahead} is as long as the shortest sequence, {sequences.lengths.min()} steps")
    starts = sequences.lengths.cumsum() - sequences.lengths
    if getattr(settings, "window", None) is not None:
        raise UsageError("window is for one long series, and the data has sequences: leave it out")
    if sequences.split is not None:
        numbers = [np.flatnonzero(sequences.split == part) for part in range(3)]
    else:
        numbers = _dealt(sequences, settings)
    for name, own in zip(PART_NAMES, numbers, strict=True):
        if not len(own) and (name != "validation" or (sequences.split is None and settings.validation_share)):
            raise UsageError(f"{counted(len(lengths), 'sequence')} leave none for {name}: give more, or other shares")
    return Divided(starts, lengths, (numbers[0], numbers[1], numbers[2]))


def _dealt(sequences: Sequences, settings: DataSettings) -> list[NDArray[np.int64]]:
    """Return the numbers of the sequences of each part, with equal shares of each class."""
    count = len(sequences.lengths)
    order = np.arange(count)
    if settings.split_seed is not None:
        order = torch.randperm(count, generator=seeded_generator(settings.split_seed, "split")).numpy()
    is_by_class = sequences.classes and not sequences.by_step and settings.split_seed is not None
    groups = [order]
    if is_by_class:
        assert sequences.targets is not None
        groups = [order[sequences.targets[order] == number] for number in range(len(sequences.classes))]
    # Spread each class evenly over 0 to 1, and cut there, so that the sizes of the parts do not depend on the classes.
    places = np.concatenate([(np.arange(len(group)) + 0.5) / len(group) for group in groups])
    spread = np.concatenate(groups)[np.argsort(places, kind="stable")]
    test = max(1, round(settings.test_share * count))
    validation = max(1, round(settings.validation_share * count)) if settings.validation_share else 0
    trained = max(0, count - test - validation)
    return [np.sort(part) for part in np.split(spread, (trained, trained + validation))]


def _borders(steps: int, test_share: float, validation_share: float) -> tuple[int, int, int, int]:
    """Return the first steps of the parts of a series, which are training, validation and test, and its end."""
    test, validation = round(test_share * steps), round(validation_share * steps)
    return 0, steps - test - validation, steps - test, steps


def _longest_window(steps: int, test_share: float, validation_share: float, ahead: int) -> int:
    """Return the steps of the longest window of a series that each of its parts has, with those `ahead` of it."""
    training, validation, test = (
        last - first for first, last in pairwise(_borders(steps, test_share, validation_share))
    )
    return min(training, test, validation if validation_share else test) - ahead


def _windows(sequences: Sequences, settings: DataSettings, ahead: int) -> Divided:
    """Return the windows of a series, cut one after the other in each part.

    Raises:
        UsageError: the series is too short.
    """
    steps, window = len(sequences.steps), getattr(settings, "window", None) or WINDOW
    shares = settings.test_share, settings.validation_share
    borders = _borders(steps, *shares)
    starts = [np.arange(first, last - window - ahead + 1, window) for first, last in pairwise(borders)]
    for name, own in zip(PART_NAMES, starts, strict=True):
        if not len(own) and (name != "validation" or settings.validation_share):
            least = f"{window} steps" + (f" and horizon={ahead}" if ahead else "")
            longest = _longest_window(steps, *shares, ahead)
            fix = f"give at most window={longest}" if longest > 1 else "give more steps"
            raise UsageError(f"the {steps} steps of the series leave no window of {least} for {name}: {fix}")
    counts = np.cumsum([len(own) for own in starts])
    numbers = np.split(np.arange(counts[-1]), counts[:-1])
    joined = np.concatenate(starts)
    return Divided(joined, np.full(len(joined), window), (numbers[0], numbers[1], numbers[2]))


def rows_of(divided: Divided, part: int) -> NDArray[np.int64]:
    """Return the numbers of the steps of a part, `[steps]`."""
    own = divided.parts[part]
    lengths = divided.lengths[own]
    within = np.arange(lengths.sum()) - (lengths.cumsum() - lengths).repeat(lengths)
    return divided.starts[own].repeat(lengths) + within


class Part(Split):
    """A part of the data on a device.

    A training batch has as many steps as the longest training sequence, so that its shape never changes. A test batch
    has as many as its own longest sequence.
    """

    def __init__(self, task: DataTask, divided: Divided, part: int, device: torch.device) -> None:
        own = divided.parts[part]
        self.task = task
        self.starts = torch.from_numpy(divided.starts[own]).to(device)
        self.lengths = torch.from_numpy(divided.lengths[own]).to(device)
        self.numbers = torch.from_numpy(own).to(device)
        self.longest = int(divided.lengths[own].max())
        self.keeps_shape = part == 0
        self.is_ragged = bool((divided.lengths != divided.lengths[0]).any())

    def __len__(self) -> int:
        return len(self.numbers)

    def batch(self, examples: Tensor) -> Batch:
        starts, lengths = self.starts[examples], self.lengths[examples]
        steps = self.longest if self.keeps_shape or not self.is_ragged else int(lengths.max())
        time = torch.arange(steps, device=starts.device).unsqueeze(1)
        valid = time < lengths
        rows = torch.where(valid, starts + time, 0)
        inputs = self.task.inputs[rows]
        padding = ~valid if inputs.dim() == 2 else ~valid.unsqueeze(-1)
        inputs = inputs.masked_fill(padding, 0)
        targets = self.task.targets_at(rows, valid, self.numbers[examples])
        return Batch(inputs, targets, lengths if self.is_ragged else None)


class DataTask(Task):
    """The base class of the tasks of own data.

    Attributes:
        inputs: the scaled features of all steps, `[steps, features]`, or symbol numbers `[steps]`.
        mean, scale: what a feature loses before it is divided by the scale, `[features]`.
    """

    kind: ClassVar[Kind]
    protocol = {"epochs": 30, "optimizer": "adam", "learning_rate": 1e-3, "clip_norm": 1.0}
    quick = {"hidden_size": 64, "epochs": 5, "max_iterations": 1000}

    def __init__(self, settings: Any, seed: int, device: torch.device) -> None:
        sequences = settings.sequences
        try:
            divided = divide(sequences, settings)
        except UsageError as error:
            raise UsageError(f"{settings.kind}:{settings.file_name}: {error}") from error
        self.settings, self.sequences = settings, sequences
        is_text = bool(sequences.alphabet)
        steps = sequences.steps
        self.mean: Array = np.zeros(1, np.float32)
        self.scale: Array = np.ones(1, np.float32)
        if not is_text and settings.standardise:
            self.mean, self.scale = _mean_and_scale(steps[rows_of(divided, 0)])
        scaled = steps if is_text else (steps - self.mean) / self.scale
        self.inputs = torch.from_numpy(scaled).to(device)
        self.prepare(divided, device)
        is_ragged = bool((divided.lengths != divided.lengths[0]).any())
        by_step = sequences.by_step or self.kind == "forecast"
        readout: Any = "all" if by_step else "last_valid" if is_ragged else "last"
        self.signature = Signature(sequences.features, self.output_size, readout, tokens=is_text)
        self.train, self.test = Part(self, divided, 0, device), Part(self, divided, 2, device)
        self.validation = Part(self, divided, 1, device) if len(divided.parts[1]) else None

    output_size: int

    def prepare(self, divided: Divided, device: torch.device) -> None:
        """Set the targets and the number of outputs."""
        raise NotImplementedError

    def targets_at(self, rows: Tensor, valid: Tensor, numbers: Tensor) -> Tensor:
        """Return the targets of a batch.

        Args:
            rows: the steps in the table of steps, `[time, batch]`.
            valid: which of them are no padding.
            numbers: the numbers of the sequences, `[batch]`.
        """
        raise NotImplementedError

    @classmethod
    def remark(cls, settings: Any) -> str:
        """Say in one line what the data is, and how it is divided.

        Raises:
            UsageError: the data cannot be divided.
        """
        sequences = settings.sequences
        divided = divide(sequences, settings)
        counts = [len(part) for part in divided.parts]
        low, high = int(sequences.lengths.min()), int(sequences.lengths.max())
        what = "characters" if sequences.alphabet else "features"
        number = f"{sequences.features} {what}" if sequences.features > 1 else "1 feature"
        if sequences.is_series:
            size = f"one series of {high} steps with {number}, in windows of {divided.lengths[0]}"
        else:
            steps = f"{low}" if low == high else f"{low} to {high}"
            size = f"{counted(len(sequences.lengths), 'sequence')} of {steps} steps with {number}"
        facts = [size]
        if sequences.layout:
            by_shape = open_data(Path(settings.data), settings.data_md5, settings.kind)
            facts.append((by_shape if by_shape.layout == sequences.layout else sequences).found)
        if sequences.classes:
            facts.append(f"{len(sequences.classes)} classes")
        if sequences.targets is not None:
            facts.append(f"a target for each {'step' if sequences.by_step else 'sequence'}")
            values = np.unique(sequences.targets)
            if settings.kind == "regression" and len(values) <= FEW_VALUES and (values == np.rint(values)).all():
                facts.append(
                    f"its {len(values)} whole numbers are taken for amounts: for classes write "
                    f"classification:{settings.file_name}, with one whole number or word for each"
                )
        shares = ", ".join(f"{count} {name}" for count, name in zip(counts, PART_NAMES, strict=True))
        return f"{settings.kind}:{settings.file_name}: {'; '.join(facts)}; {shares}"


FEW_VALUES = 20
"""Up to this number of different whole numbers, targets of type float may be meant as classes."""


def _mean_and_scale(values: Array) -> tuple[Array, Array]:
    """Return the mean and the standard deviation of each column, 1 for a constant one, in float32."""
    mean, deviation = values.mean(0, np.float64), values.std(0, dtype=np.float64)
    return mean.astype(np.float32), np.where(deviation > 1e-6 * np.abs(mean), deviation, 1).astype(np.float32)


class Classification(DataTask):
    """Loss: mean cross-entropy in nats. Metrics: accuracy and cross-entropy."""

    kind = "classification"
    title = "classification of own data"
    Settings = ClassificationSettings
    # Graded, because nobody has said that a model can solve these data.
    metrics = (
        Metric("accuracy", "max", is_fraction=True, is_graded=True),
        Metric("cross_entropy", "min", "nats", "cross-entropy"),
    )
    loss_metric = "cross_entropy"

    def prepare(self, divided: Divided, device: torch.device) -> None:
        assert self.sequences.targets is not None
        self.labels = torch.from_numpy(self.sequences.targets).to(device)
        self.output_size = len(self.sequences.classes)

    def targets_at(self, rows: Tensor, valid: Tensor, numbers: Tensor) -> Tensor:
        if not self.sequences.by_step:
            return self.labels[numbers]
        return torch.where(valid, self.labels[rows], IGNORED)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        return nn.functional.cross_entropy(outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED)

    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        known = targets != IGNORED
        nats = nn.functional.cross_entropy(
            outputs.flatten(0, -2), targets.flatten(), ignore_index=IGNORED, reduction="sum"
        )
        weight = float(known.sum())
        return {"accuracy": ((outputs.argmax(-1) == targets)[known].sum(), weight), "cross_entropy": (nats, weight)}

    @classmethod
    def baselines(cls, settings: ClassificationSettings) -> dict[str, float]:
        """The test scores of the shares of the classes in the training data, and of the most frequent one."""
        sequences = settings.sequences
        divided = divide(sequences, settings)
        assert sequences.targets is not None
        chosen = [rows_of(divided, part) if sequences.by_step else divided.parts[part] for part in (0, 2)]
        counts = np.bincount(sequences.targets[chosen[0]], minlength=len(sequences.classes)) + 1.0
        tested = sequences.targets[chosen[1]]
        nats = -np.log(counts / counts.sum())[tested].mean()
        return {"accuracy": float((tested == counts.argmax()).mean()), "cross_entropy": float(nats)}


class Amounts(DataTask):
    """The base class of tasks whose targets are amounts. Loss: mean squared error of the scaled targets.

    Attributes:
        target_mean, target_scale: the scaling of the targets, `[p]`.
    """

    metrics = (
        Metric("mse", "min", label="mean squared error", is_graded=True),  # as above
        Metric("nmse", "min", label="mean squared error / variance"),
    )
    loss_metric = "nmse"

    def amounts(self) -> tuple[Array, int]:
        """Return the table of targets, and by how many rows a target comes after the step that predicts it."""
        assert self.sequences.targets is not None
        return self.sequences.targets, 0

    def prepare(self, divided: Divided, device: torch.device) -> None:
        table, self.ahead = self.amounts()
        by_step = self.sequences.by_step or self.kind == "forecast"
        trained = table[rows_of(divided, 0) + self.ahead] if by_step else table[divided.parts[0]]
        mean, scale = _mean_and_scale(trained) if self.settings.standardise else (np.zeros(1), np.ones(1))
        self.variance = _variance(trained)
        self.table = torch.from_numpy(table).to(device)
        self.target_mean, self.target_scale = (torch.from_numpy(np.float32(v)).to(device) for v in (mean, scale))
        self.output_size = table.shape[1]

    def targets_at(self, rows: Tensor, valid: Tensor, numbers: Tensor) -> Tensor:
        if not (self.sequences.by_step or self.kind == "forecast"):
            return self.table[numbers]
        return torch.where(valid.unsqueeze(-1), self.table[torch.where(valid, rows + self.ahead, 0)], math.inf)

    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        known = targets.isfinite()
        errors = torch.where(known, outputs - (targets - self.target_mean) / self.target_scale, 0).square()
        return errors.sum() / known.sum()

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
        divided = divide(task.sequences, settings)
        table, ahead = task.amounts()
        by_step = task.sequences.by_step or cls.kind == "forecast"

        def read_and_asked(part: int) -> tuple[Array, Array]:
            own = divided.parts[part]
            rows = rows_of(divided, part) if by_step else divided.starts[own] + divided.lengths[own] - 1
            return task.inputs[rows].numpy(), table[rows + ahead] if by_step else table[own]

        (read, asked), (read_in_test, expected) = read_and_asked(0), read_and_asked(2)
        errors = [_error(np.broadcast_to(asked.mean(0, np.float64), expected.shape), expected)]
        of_mean = errors[0]
        if not task.sequences.alphabet:
            errors.append(_error(_linear(read, asked, read_in_test), expected))
        if cls.kind == "forecast":
            errors.append(_error(read_in_test * task.scale + task.mean, expected))
        return {"mse": min(errors), "nmse": of_mean / task.variance}


def _variance(targets: Array) -> float:
    """Return the mean variance of the training targets, or their mean square if they are constant."""
    variance = float(targets.var(0, dtype=np.float64).mean())
    return variance or float(np.square(targets, dtype=np.float64).mean()) or 1.0


def _error(predicted: Array, expected: Array) -> float:
    return float(np.square(predicted - expected, dtype=np.float64).mean())


def _linear(read: Array, asked: Array, read_in_test: Array) -> Array:
    """Return the predictions of a linear map with a bias, fitted by least squares to the training data."""
    x, y = (np.column_stack([each, np.ones(len(each))]).astype(np.float64) for each in (read, read_in_test))
    predicted: Array = y @ (np.linalg.pinv(x.T @ x) @ (x.T @ asked.astype(np.float64)))
    return predicted


class Regression(Amounts):
    """Targets are amounts for each sequence, or each step."""

    kind = "regression"
    title = "regression on own data"
    Settings = RegressionSettings


class Forecast(Amounts):
    """Targets are the features `horizon` steps later."""

    kind = "forecast"
    title = "forecast of own data"
    Settings = ForecastSettings

    def amounts(self) -> tuple[Array, int]:
        return self.sequences.steps, int(self.settings.horizon)


TASKS: dict[Kind, type[DataTask]] = {"classification": Classification, "regression": Regression, "forecast": Forecast}


@functools.cache
def task_of(kind: Kind, name: str, data: str = "") -> type[DataTask]:
    """Return the task of a file or folder.

    Args:
        name: the name of the file.
        data: its path; "" if a setting gives it, as in a stored run.
    """
    base, usual = TASKS[kind], DataSettings.model_fields["data"]
    field = (str, Field(data, description=usual.description))
    settings = cast(Any, create_model(base.Settings.__name__, __base__=base.Settings, data=field))
    settings.file_name = name
    members: dict[str, Any] = {"__module__": __name__, "__doc__": base.__doc__, "Settings": settings}
    if data:
        members["protocol"] = {**base.protocol, "batch_size": _batch_size(settings)}
    return type(base.__name__, (base,), members)


def _batch_size(settings: Any) -> int:
    """Return the usual batch size: a power of two that leaves at least two batches in the training data."""
    with contextlib.suppress(UsageError):  # the run itself will raise it
        count = settings.read({}).train_size
        return int(min(LARGEST_BATCH, 2 ** (max(1, count // 2).bit_length() - 1)))
    return LARGEST_BATCH
