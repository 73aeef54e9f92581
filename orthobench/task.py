"""The base class of tasks: data from settings and a seed, in batches, a loss, metrics, and baselines.

Also the settings of training, and one seed per run, split by purpose, so that no two uses of randomness share a stream.
"""

from __future__ import annotations

import hashlib
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Annotated, Any, ClassVar, Literal, Protocol, Self, cast

import torch
from pydantic import Field, field_validator, model_validator
from torch import Tensor

from orthobench.errors import UsageError, shown, wrong_value
from orthobench.metric import Metric as Metric
from orthobench.model import Model, Signature, State
from orthobench.recurrence import GradientTrace
from orthobench.settings import Settings


def derive_seed(seed: int, *purpose: str | int) -> int:
    """Return a 63-bit seed for one purpose, such as ("data", "train"); the same on every machine."""
    # Not Python's `hash`, because texts have another one in each process.
    digest = hashlib.sha256("/".join(map(str, (seed, *purpose))).encode()).digest()
    return int.from_bytes(digest[:8], "big") >> 1


def seeded_generator(seed: int, *purpose: str | int) -> torch.Generator:
    """Return a CPU generator for one purpose; runs on any device draw on the CPU, so that they agree."""
    return torch.Generator().manual_seed(derive_seed(seed, *purpose))


Size = Annotated[int, Field(ge=1)]
MULTIPLES = (2, 4, 8)
"""The multiples of the trained length at which tasks with the setting `longer_tests` test."""


@dataclass(frozen=True)
class Batch:
    """Inputs and the targets that the task's loss expects.

    Attributes:
        inputs: `[time, batch, features]`, or symbol numbers `[time, batch]` if the signature has `tokens`.
        lengths: the number of valid steps of each sequence, int64 `[batch]`, at least 1. Later steps are padding.
            None: all steps are valid.
        positions: the steps whose outputs are read with readout "positions", int64 `[answers, batch]`. A sequence with
            fewer answers repeats one; its targets determine which answers count.
    """

    inputs: Tensor
    targets: Tensor
    lengths: Tensor | None = None
    positions: Tensor | None = None

    def through(
        self, model: Model, state: State | None = None, trace: GradientTrace | None = None
    ) -> tuple[Tensor, State]:
        """Return the outputs of a model for this batch, and its final state."""
        result: tuple[Tensor, State] = model(
            self.inputs, state, trace=trace, lengths=self.lengths, positions=self.positions
        )
        return result

    @staticmethod
    def of(split: Split, examples: Tensor) -> Batch:
        """Return the batch of these examples of a split.

        Raises:
            TypeError: the split returns something else.
        """
        batch: Any = split.batch(examples)
        if not isinstance(batch, Batch):
            raise wrong_value(split, "batch", batch, "Batch(inputs, targets)")
        return batch

    def columns(self, first: int, last: int, outputs_by_step: bool) -> Batch:
        """Return the batch of the sequences first to last - 1.

        Args:
            outputs_by_step: whether the targets are `[steps, batch]`, not `[batch]`.
        """
        return Batch(
            self.inputs[:, first:last].contiguous(),
            self.targets[:, first:last] if outputs_by_step else self.targets[first:last],
            None if self.lengths is None else self.lengths[first:last],
            None if self.positions is None else self.positions[:, first:last],
        )


class Split(Protocol):
    """A part of the data; the trainer selects batches by example numbers."""

    def __len__(self) -> int: ...

    def batch(self, examples: Tensor) -> Batch:
        """Return the examples with these numbers `[batch]`, on the task's device."""


class Stream(Split, Protocol):
    """A split that is one text, cut into equal columns without the remainder, and read from top to bottom."""

    def pieces(self, columns: int) -> int:
        """Return the number of batches with this many columns; 0 if the split is too short."""

    def piece(self, position: int, columns: int) -> Batch:
        """Return the batch at a position, `[time, columns, features]`; it continues the previous one."""


class TrainingSettings(Settings):
    """The protocol: how a run is trained and how often it is tested."""

    batch_size: Size = Field(50, description="number of sequences in a training batch")
    epochs: Size = Field(10, description="number of passes over the training set")
    max_iterations: Size | None = Field(None, description="most iterations; none: only epochs limits the run")
    evaluate_every: Size | None = Field(
        None, description="iterations between evaluations; none: one evaluation per epoch"
    )
    evaluation_batch_size: Size = Field(1000, description="number of sequences in an evaluation batch")
    learning_rate_decay: float = Field(1.0, gt=0, le=1, description="factor on all learning rates at every decay")
    decay_every: Size = Field(1, description="epochs between decays")
    plateau_decay: float = Field(
        1.0,
        gt=0,
        le=1,
        description="factor on all learning rates after an epoch without a new best validation value",
        json_schema_extra={"neutral": 1.0},
    )
    warmup: float = Field(
        0.0,
        ge=0,
        description="linear warm-up of the learning rates from 0: a share of all iterations if below 1, "
        "else a number of iterations; none: 0",
        json_schema_extra={"neutral": 0.0},
    )
    schedule: Literal["constant", "cosine"] = Field(
        "constant",
        description="schedule of the learning rates after the warm-up; cosine: half a cosine down to the final rate",
        json_schema_extra={"neutral": "constant"},
    )
    final_rate: float | None = Field(
        None,
        ge=0,
        description="cosine: learning rate at the end, for every group of parameters; none: final_share decides",
        json_schema_extra={"neutral": None},
    )
    final_share: float = Field(
        0.0,
        ge=0,
        le=1,
        description="cosine: learning rate at the end as a share of each group's learning rate; for final_rate=none",
        json_schema_extra={"neutral": 0.0},
    )
    solved_at: float | None = Field(
        None,
        description="stop when the main metric reaches this value at an evaluation, on the data of judged_by; "
        "none: train to the end",
        json_schema_extra={"neutral": None},
    )
    judged_by: Literal["test", "validation", "validation_only"] = Field(
        "test",
        description="data that decide when a run is solved or has diverged, and which weights are best; validation: "
        "tests are only reported; validation_only: no tests at all, for the trials of a search",
        json_schema_extra={"neutral": "test"},
    )
    shuffle: bool = Field(True, description="draw a new order of the training set in every epoch")
    clip_norm: float | None = Field(
        None, gt=0, description="largest norm of the gradient of all parameters; none: no limit"
    )
    clip_value: float | None = Field(
        None, gt=0, description="largest absolute value of a gradient entry; none: no limit"
    )
    diverged_above: float | None = Field(
        1e4,
        gt=0,
        description="a test loss above this multiple of the baseline means diverged; "
        "none: only a loss that is not finite",
        json_schema_extra={"neutral": 1e4},
    )
    probes: tuple[str, ...] = Field(
        (), description="probes in addition to the default ones, as a,b", json_schema_extra={"neutral": []}
    )

    @field_validator("warmup", mode="before")
    @classmethod
    def _no_warmup(cls, value: Any) -> Any:
        return 0.0 if value is None or str(value).lower() == "none" else value

    @field_validator("probes", mode="before")
    @classmethod
    def _names(cls, value: Any) -> Any:
        """Read names separated by commas, and sort them because their order has no meaning."""
        names = {name.strip() for name in (value.split(",") if isinstance(value, str) else value or ())}
        if "" in names:
            raise ValueError("has an empty name: write probes=a,b")
        return sorted(names - {"none"})

    @model_validator(mode="after")
    def _check_schedule(self) -> Self:
        """Refuse values without effect and fractions of an iteration."""
        if self.warmup >= 1 and self.warmup != int(self.warmup):
            raise ValueError(f"warmup={self.warmup:g}: give a share below 1, or a whole number of iterations")
        if self.schedule != "cosine" and (self.final_rate is not None or self.final_share):
            raise ValueError("final_rate and final_share end a cosine: set schedule=cosine as well")
        if self.final_rate is not None and self.final_share:
            raise ValueError("final_rate and final_share both set the end of the cosine: give one of them")
        return self


class SyntheticSettings(Settings):
    """Settings of all generated data sets."""

    train_size: Size = Field(100_000, description="training sequences")
    test_size: Size = Field(10_000, description="test sequences")
    validation_size: int = Field(
        0,
        ge=0,
        description="validation sequences, which neither training nor tests have; none: 0",
        json_schema_extra={"neutral": 0},
    )


class ScalableSettings(SyntheticSettings):
    """Settings of generated data whose `sequence_length` can be that of longer tests."""

    longer_tests: bool = Field(
        False,
        description="whether to test at lengths of 2T, 4T and 8T as well, once after training",
        json_schema_extra={"neutral": False},
    )

    def longer(self) -> dict[int, Self]:
        """Return the settings at multiples of the length, by multiple, if longer tests are asked for."""
        length = self.sequence_length  # type: ignore[attr-defined]
        multiples = MULTIPLES if self.longer_tests else ()
        return {multiple: self.model_copy(update={"sequence_length": multiple * length}) for multiple in multiples}


PROTOCOL_OF_MODELS = ("optimizer", "learning_rate")
"""The settings of models that a task's protocol may have, in addition to those of training."""


class Task(ABC):
    """Base of the task plugins.

    Attributes:
        version: raise it whenever the same settings give different data or different numbers.
        metrics: every metric of `summarise` and `final_metrics`; the first is the main one, which papers report.
        loss_metric: the metric whose growth means divergence, if the main metric is maximised.
        length_metric: the metric that is also measured for each length of the test sequences, if any. The task then
            has `score` and `trained_lengths`.
        protocol: the training settings from the literature, and the optimiser of models that name none
            (`PROTOCOL_OF_MODELS`). A built-in model on a built-in task has the optimiser of its papers.
        quick: settings of all kinds for a run of a minute or two.
        cites: the keys of its papers in `orthobench/papers/references.bib`, such as "hochreiter1997, arjovsky2016", the
            paper that defines it first. Only built-in tasks have keys.
        exact: the name of a model, as "model", and settings of all kinds on top of `quick`, for a run of a few seconds
            whose numbers the project's gate compares to the last bit. It clips gradients, shuffles and decays its
            learning rate, and learns enough that other data would change its loss by more than the tolerance.
        carries_state: whether a batch starts from the final state of the previous one, without gradient. Every split
            is a `Stream` then, and no batch has lengths.
        longer_tests: test sequences at multiples of the trained length, by multiple, which are tested once after
            training.
        longer_metric: the metric on `longer_tests`.
        tracks_states: whether a target is the state that a machine has reached, a class, as the probe `error_control`
            needs.
        short_title: the name in figures and tables; "" for the title.
        state_matters: whether the report also shows the main metric over the size of a model's state, because the task
            asks how much the state can hold.
        validation: None if the literature uses no validation data.
        affine_fails: why no affine function of the inputs solves the task, if none does.
        epoch: the number of the current epoch, which the trainer sets for tasks that draw new data in every epoch.
        draws_ahead: whether several training batches are drawn together, because drawing one costs as much as drawing
            many. All training sequences then have the same number of steps, with padding.
    """

    version: ClassVar[int] = 1
    title: ClassVar[str]
    short_title: ClassVar[str] = ""
    Settings: ClassVar[type[Settings]]
    metrics: ClassVar[tuple[Metric, ...]]
    loss_metric: ClassVar[str | None] = None
    length_metric: ClassVar[str | None] = None
    protocol: ClassVar[Mapping[str, Any]] = {}
    quick: ClassVar[Mapping[str, Any]] = {}
    cites: ClassVar[str] = ""
    exact: ClassVar[Mapping[str, Any]] = {}
    carries_state: ClassVar[bool] = False
    tracks_states: ClassVar[bool] = False
    state_matters: ClassVar[bool] = False
    longer_metric: ClassVar[str] = ""
    longer_tests: Mapping[int, Split] = {}
    draws_ahead: ClassVar[bool] = False
    affine_fails: ClassVar[str] = ""

    signature: Signature
    train: Split
    validation: Split | None = None
    test: Split
    epoch: int = 0

    @classmethod
    def wrong_attribute(cls) -> str:
        """Say which attribute of the class has a wrong value; "" if none has."""
        if not (isinstance(cls.Settings, type) and issubclass(cls.Settings, Settings)):
            return f"Settings={shown(cls.Settings)}: derive a class from orthobench.settings.Settings"
        metrics: Any = cls.metrics
        if not (isinstance(metrics, (tuple, list)) and metrics and all(isinstance(each, Metric) for each in metrics)):
            return f"metrics={shown(metrics)}: give a tuple such as (Metric('mse', 'min'),)"
        for name in ("protocol", "quick"):
            if not isinstance(values := getattr(cls, name), Mapping):
                return f"{name}={shown(values)}: give a dictionary of settings"
        strange = cls.protocol.keys() - TrainingSettings.model_fields.keys() - set(PROTOCOL_OF_MODELS)
        return f"protocol sets {', '.join(sorted(strange))}, which is not a training setting" if strange else ""

    @classmethod
    def version_of(cls, settings: Any) -> int:
        """Return the version of the task with these settings: `version`.

        If a task's data changes only for some settings, it raises the version for these, so that other runs keep
        theirs.
        """
        return cls.version

    @classmethod
    def remark(cls, settings: Any) -> str:
        """Return a line about the user's own data that a run prints before it trains; "" for other tasks."""
        return ""

    @abstractmethod
    def __init__(self, settings: Any, seed: int, device: torch.device) -> None:
        """Generate or open the data. The same settings and seed give the same data on every device."""

    def generate(self, settings: Any, split: Callable[[str, int, Any], Split]) -> None:
        """Set the splits of generated data with `ScalableSettings`, and those of the longer tests.

        Args:
            split: returns the split of a part from its name, its number of sequences and the settings. A part is
                "train", "test" or "validation", and "test 2" is the longer test at 2T.
        """
        self.train = split("train", settings.train_size, settings)
        self.test = split("test", settings.test_size, settings)
        if size := settings.validation_size:
            self.validation = split("validation", size, settings)
        self.longer_tests = {
            multiple: split(f"test {multiple}", settings.test_size, longer)
            for multiple, longer in settings.longer().items()
        }

    @abstractmethod
    def loss(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the loss that training minimises: a scalar, averaged over the batch."""

    @abstractmethod
    def measure(self, outputs: Tensor, targets: Tensor) -> dict[str, tuple[Tensor, float]]:
        """Return a batch's metrics as (total, weight); a split's value is the sum of totals over the sum of weights.

        `summarise` may compute other metrics from these values. A total of several numbers, such as a confusion matrix,
        is logged as a vector, and `summarise` leaves it out.
        """

    def summarise(self, means: dict[str, float]) -> dict[str, float]:
        """Return a split's metrics, given its values of `measure`; by default these values.

        Compute metrics here that are not means, such as the root of a mean.
        """
        return means

    def score(self, outputs: Tensor, targets: Tensor) -> Tensor:
        """Return the value of `length_metric` for each sequence, `[batch]`, or for each step, `[time, batch]`.

        The metric is the mean over sequences, or over valid steps. The score of step t counts for length t, because it
        is the score of the sequence cut off after t steps.
        """
        raise NotImplementedError(f"{type(self).__name__} has a length_metric but no score: define score")

    @classmethod
    def trained_lengths(cls, settings: Any) -> tuple[int, int]:
        """Return the shortest and the longest length of the training sequences, for a task with a `length_metric`."""
        raise NotImplementedError(f"{cls.__name__} has a length_metric but no trained_lengths: define trained_lengths")

    def length_bins(self, lengths: Tensor) -> Tensor:
        """Return the length under which the score of each length counts, int64 `[N]`; by default the length itself.

        A task with very many lengths merges some, for example by `(lengths + 9) // 10 * 10`.
        """
        return lengths

    @property
    def has_final_metrics(self) -> bool:
        """Whether `final_metrics` measures anything."""
        return type(self).final_metrics is not Task.final_metrics or bool(self.longer_tests)

    def final_metrics(self, model: Model, report: Callable[[int, int], None]) -> dict[str, float]:
        """Return metrics that are too slow for every evaluation, measured once after the last iteration.

        By default these are the values of `longer_metric` on `longer_tests`, named as in "mse_2t".

        Args:
            report: receives the number of finished parts of the work and the number of all parts.
        """
        sums = dict.fromkeys(self.longer_tests, (0.0, 0.0))
        parts = [(n, rows) for n, split in self.longer_tests.items() for rows in torch.arange(len(split)).split(100)]
        device = next(model.parameters()).device
        for done, (multiple, rows) in enumerate(parts, 1):
            batch = self.longer_tests[multiple].batch(rows.to(device))
            with torch.no_grad():
                value, weight = self.measure(batch.through(model)[0], batch.targets)[self.longer_metric]
            before, weights = sums[multiple]
            sums[multiple] = before + float(value), weights + weight
            report(done, len(parts))
        return {f"{self.longer_metric}_{multiple}t": value / weight for multiple, (value, weight) in sums.items()}

    @classmethod
    def main_metric(cls) -> Metric:
        """Return the metric by which runs are compared."""
        return cls.metrics[0]

    @classmethod
    def divergence_metric(cls) -> str | None:
        """Return the name of the metric whose growth means divergence; None if no metric is minimised."""
        return cls.loss_metric or (cls.main_metric().name if cls.main_metric().goal == "min" else None)

    @classmethod
    @abstractmethod
    def baselines(cls, settings: Any) -> dict[str, float]:
        """Return the score of the best predictor without memory, by metric."""

    def constant(self, split: Split) -> dict[str, float]:
        """Return the metrics of the best constant answer to the very sequences of a split.

        They take the place of `baselines`, because the best constant of a few hundred sequences differs from that of
        all sequences by as much as a model that has learnt nothing differs from the latter. By default there are none:
        an answer that knows its input symbol, or a chance near zero, is better or as good.
        """
        return {}

    @classmethod
    def checked_baselines(cls, settings: Any) -> dict[str, float]:
        """Return the baselines.

        Raises:
            UsageError: they are not finite numbers by metric, or the main metric or the one that means divergence has
                none.
        """
        values: Any = cls.baselines(settings)
        needed = {cls.main_metric().name, cls.divergence_metric()} - {None}
        if (
            isinstance(values, Mapping)
            and needed <= values.keys()
            and all(isinstance(value, Real) and math.isfinite(value) for value in values.values())
        ):
            return {str(name): float(value) + 0.0 for name, value in values.items()}  # -0 becomes 0
        raise UsageError(
            f"{cls.__name__}.baselines returned {shown(values)}: return a number for each metric, such as "
            f"{{{cls.main_metric().name!r}: 0.5}}"
        )


PART = 1000
"""The number of sequences that are drawn at once where only their targets are read."""


def constant_of(
    task: Task, split: Split, *, by_step: bool = False, output: Callable[[Tensor], Tensor] = lambda mean: mean
) -> dict[str, float]:
    """Return every metric of the best constant on a split: the mean of the targets, or the shares of their classes.

    Args:
        split: its targets are amounts `[B, p]` or `[T, B, p]`, or numbers of classes in any shape; negative ones, which
            pad, do not count.
        by_step: whether the answer knows the step, of targets `[T, B]`.
        output: converts the mean of amounts to what a model would have to output for it.
    """
    targets = [Batch.of(split, rows).targets for rows in torch.arange(len(split)).split(PART)]
    if is_amount := targets[0].is_floating_point():
        answer = output(torch.cat([part.flatten(0, -2) for part in targets]).double().mean(0)).float()
    elif by_step:
        classes = torch.arange(task.signature.output_size, device=targets[0].device)
        counts = sum((part.unsqueeze(-1) == classes).sum(1, keepdim=True) for part in targets)
        answer = torch.as_tensor(counts).double().log().float()
    else:
        known = torch.cat([part[part >= 0] for part in targets])
        answer = torch.bincount(known, minlength=task.signature.output_size).double().log().float()
    totals: dict[str, tuple[float, float]] = {}
    for part in targets:
        outputs = answer.expand(*(part.shape[:-1] if is_amount else part.shape), -1)
        for name, (total, weight) in task.measure(outputs, part).items():
            before, weights = totals.get(name, (0.0, 0.0))
            totals[name] = before + float(total), weights + weight
    return task.summarise(means_of(totals))


def loss_of(task: Task, outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the loss of a batch.

    Raises:
        TypeError: the task returns something else.
    """
    loss: Any = task.loss(outputs, targets)
    if not isinstance(loss, Tensor):
        raise wrong_value(task, "loss", loss, "a tensor of one number")
    return loss


def measured(task: Task, outputs: Tensor, targets: Tensor) -> Mapping[str, tuple[Tensor, float]]:
    """Return the total and the weight of each metric of a task for a batch.

    Raises:
        TypeError: the task returns something else.
    """
    totals: Any = task.measure(outputs, targets)
    if not isinstance(totals, Mapping) or not all(
        isinstance(pair, (tuple, list)) and len(pair) == 2 and isinstance(pair[0], Tensor) for pair in totals.values()
    ):
        example = f"{{{task.main_metric().name!r}: (total, weight)}}"
        raise wrong_value(task, "measure", totals, f"a tensor and a weight for each metric, such as {example}")
    return totals


def means_of(totals: Mapping[str, tuple[Any, float]]) -> dict[str, Any]:
    """Return what `Task.summarise` takes: the mean of each metric, a tensor if its total has several numbers."""
    return {
        name: total / weight if isinstance(total, Tensor) and total.dim() else float(total) / weight
        for name, (total, weight) in totals.items()
    }


_AHEAD = 512  # training sequences that are drawn together


class Batches:
    """A task's training set in batches. Examples that do not fill a batch at the end of an epoch are dropped.

    Attributes:
        per_epoch: number of batches in the training set.

    Raises:
        UsageError: the training set is smaller than a batch, or the settings shuffle a stream, or a stream is too short
            to be evaluated.
    """

    def __init__(self, task: Task, training: TrainingSettings, seed: int, device: torch.device) -> None:
        self.task, self.seed, self.device = task, seed, device
        self.size, self.shuffle = training.batch_size, training.shuffle
        self.stream = as_stream(task, task.train)
        self._order: tuple[int, Tensor] | None = None  # an epoch and the order of its examples
        self._drawn: tuple[int, int, Batch] | None = None  # an epoch, a position in it, and the batches from there on
        if self.stream is None:
            if self.size > len(task.train):
                raise UsageError(
                    f"batch_size={self.size} is more than the training set of {len(task.train)}: "
                    "give a smaller batch_size"
                )
            self.per_epoch = len(task.train) // self.size
        else:
            _check_streams(task, training)
            self.per_epoch = self.stream.pieces(self.size)

    def at(self, iteration: int) -> Batch:
        """Return the batch of an iteration, counted from 0."""
        epoch, position = divmod(iteration, self.per_epoch)
        self.task.epoch = epoch
        if self.stream is not None:
            return self.stream.piece(position, self.size)
        count = max(1, _AHEAD // self.size) if self.task.draws_ahead else 1
        first = position - position % count
        if self._drawn is None or self._drawn[:2] != (epoch, first):
            last = min(first + count, self.per_epoch)
            batch = Batch.of(self.task.train, self._examples(epoch, first * self.size, last * self.size))
            if count == 1:
                return batch
            self._drawn = epoch, first, batch
        start = (position - first) * self.size
        by_step = self.task.signature.readout in ("all", "positions")
        return self._drawn[2].columns(start, start + self.size, by_step)

    def _examples(self, epoch: int, start: int, stop: int) -> Tensor:
        if not self.shuffle:
            return torch.arange(start, stop, device=self.device)
        if self._order is None or self._order[0] != epoch:
            order = torch.randperm(len(self.task.train), generator=seeded_generator(self.seed, "order", epoch))
            self._order = (epoch, order.to(self.device))
        return self._order[1][start:stop]


def as_stream(task: Task, split: Split) -> Stream | None:
    """Return the split as a stream if the task carries its state from batch to batch, or else None."""
    return cast(Stream, split) if task.carries_state else None


def _check_streams(task: Task, training: TrainingSettings) -> None:
    if training.shuffle:
        raise UsageError(
            "shuffle=true: this task reads its data in order and passes the state to the next batch: give shuffle=false"
        )
    evaluated = [split for split in (task.test, task.validation) if split is not None]
    for name, splits in (("batch_size", [task.train]), ("evaluation_batch_size", evaluated)):
        columns = getattr(training, name)
        if not all(cast(Stream, split).pieces(columns) for split in splits):
            raise UsageError(f"{name}={columns} is more columns than the data can fill: give a smaller {name}")
