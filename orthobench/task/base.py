"""The base class of tasks: data from settings and a seed, a loss, metrics, and baselines."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.errors import UsageError, shown, wrong_value
from orthobench.metric import Metric
from orthobench.model import Model, Signature
from orthobench.settings import Settings
from orthobench.task.batch import Batch, Split
from orthobench.task.settings import TrainingSettings

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
