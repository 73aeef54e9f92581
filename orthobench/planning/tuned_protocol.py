"""The tuned protocol: the same search for every model, and fresh seeds of the settings that it finds.

`protocol.toml` has the schedule and the sizes of the tasks, and `analysis/rate_search.py` the rates and the rule of the
search. Besides the rate, a search tries at most three values of one more thing. That is what the model's class names as
its `second_axis`, or else the share of the rate that the recurrent matrix gets, if it has a rate of its own. All models
train with one optimiser, one schedule and one clipping, and none has a paper's settings for the task. Exceptions are
optimisers that belong to a model's definition, such as the Cayley step of `full_urnn`.

Trials never use the test data, and are judged by their validation data. The winner's settings are trained again with
seeds that the search did not use.
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, partial
from importlib.resources import files
from typing import Any

from orthobench.analysis.rate_search import (
    FIRST,
    HALF,
    JUDGE,
    LOSS,
    RATES,
    RateSearch,
    TrialCurve,
    search_rates,
    whole_runs,
)
from orthobench.errors import UsageError, unknown
from orthobench.model import ModelSettings
from orthobench.planning.match import MatchedSize, check_can_match, nearest_size, target_count
from orthobench.planning.sweep_runs import SweepRun
from orthobench.plugins import Catalog
from orthobench.settings import SHORT_NAMES, Settings, text
from orthobench.spec.model_sizes import Counter
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Store
from orthobench.task import SyntheticSettings, Task, TrainingSettings

EVALUATIONS = 20
"""The number of evaluations of a run, so that its end is the median of its last three tests."""
SEARCH_SEED = 0
"""The seed of all trials; the fresh seeds follow it."""
VALIDATION_SIZE = 2000
"""The number of validation sequences of a generated task that is not among the columns."""
RATE, RECURRENT_RATE = "learning_rate", "recurrent_learning_rate"


@dataclass(frozen=True)
class Column:
    """A task of the protocol with its sizes; of an entry, with what its runs have.

    Attributes:
        settings: of the task.
        parameters: the number of parameters of every model; None: their own, or states of equal size.
        iterations: the length of a run; None: as the task's protocol has it.
        batch_size, solved_at: as the settings of training.
    """

    name: str
    title: str
    task: str
    settings: Mapping[str, Any] = field(default_factory=dict)
    parameters: int | None = None
    iterations: int | None = None
    batch_size: int | None = None
    solved_at: float | None = None


@dataclass(frozen=True)
class Protocol:
    """The numbers of `protocol.toml`.

    Attributes:
        seeds: the number of fresh seeds.
        recurrent_shares: the learning rates of the recurrent matrix, as shares of the other one.
        model: settings of all models.
        training: settings of training.
    """

    seeds: int
    recurrent_shares: tuple[float, ...]
    model: Mapping[str, Any]
    training: Mapping[str, Any]
    columns: tuple[Column, ...]

    def chosen(
        self, catalog: Catalog, names: Sequence[str], overrides: Mapping[str, str] | None = None
    ) -> list[Column]:
        """Return the columns with these names or tasks, in the order of the protocol; all of them without names.

        A task without a column becomes one with its own sizes. A column whose task the overrides change is called after
        them, because its title names sizes that it then does not have.

        Args:
            names: names of columns or tasks; own data is named by `Catalog.named_task`.

        Raises:
            UsageError: a name is neither a column nor a task.
        """
        found = [column for column in self.columns if not names or column.name in names or column.task in names]
        known = {name for column in found for name in (column.name, column.task)}
        for name in names:
            if name in known:
                continue
            if name not in catalog.names("task"):
                raise unknown("task", name, {*catalog.names("task"), *(column.name for column in self.columns)})
            found.append(Column(name, name, name))
        return [_renamed(catalog, column, overrides or {}) for column in found]

    def points(self, model_class: Any) -> list[Point]:
        """Return the points of a model's search, with the first rates before those that may be added."""
        settings = model_class.Settings
        axis = getattr(model_class, "second_axis", None)
        if axis is None and RECURRENT_RATE in settings.model_fields:
            values: list[dict[str, str]] = [{RECURRENT_RATE: f"{share:g}"} for share in self.recurrent_shares]
        else:
            values = [{name: text(each) for name, each in value.items()} for value in (axis.values if axis else ({},))]
        rates = [*FIRST, *(rate for rate in RATES if rate not in FIRST)]
        return [
            Point(rate, describe(value), _rates(settings, rate) | _at(rate, value))
            for rate in rates
            for value in values
        ]

    def shared_settings(self, column: Column, task_class: type[Task], model_class: Any) -> dict[str, Any]:
        """Return the settings of the column and the protocol for a model, except those that its trials try.

        All settings of training are among them, so that none comes from the task's protocol.
        """
        training = {name: own.get_default() for name, own in TrainingSettings.model_fields.items()}
        if column.iterations is None:  # a task without a column keeps its length and its batch
            training |= {name: value for name, value in task_class.protocol.items() if name in training}
        training |= {
            "final_rate": None,
            **self.training,
        }  # because a task's protocol may have a final rate, not a share
        values: dict[str, Any] = dict(training)
        if column.batch_size is not None:
            values["batch_size"] = column.batch_size
        values |= column.settings
        is_generated = issubclass(task_class.Settings, SyntheticSettings)
        if is_generated:
            values.setdefault("validation_size", VALIDATION_SIZE)
        if column.iterations is not None:
            examples = column.iterations * values["batch_size"]
            if is_generated:  # each sequence is new
                values.setdefault("train_size", examples)
            values["epochs"] = math.ceil(examples / values["train_size"])
            values["max_iterations"] = column.iterations
            values["evaluate_every"] = max(1, column.iterations // EVALUATIONS)
        values["solved_at"] = column.solved_at
        fields = model_class.Settings.model_fields
        values |= {name: value for name, value in self.model.items() if name in fields}
        optimizer = self.model["optimizer"]
        values |= {
            name: optimizer for name in fields if name.endswith("_optimizer") and _takes(model_class, name, optimizer)
        }
        return values


@cache
def protocol() -> Protocol:
    """Return the protocol of `protocol.toml`."""
    record = tomllib.loads(files(__package__).joinpath("protocol.toml").read_text("utf-8"))
    search = record["search"]
    return Protocol(
        search["seeds"],
        tuple(search["recurrent_shares"]),
        record["model"],
        record["training"],
        tuple(Column(**column) for column in record["column"]),
    )


def _renamed(catalog: Catalog, column: Column, overrides: Mapping[str, str]) -> Column:
    fields = catalog.load("task", column.task).Settings.model_fields
    given = {SHORT_NAMES.get(name, name): value for name, value in overrides.items()}
    changed = {name: value for name, value in given.items() if name in fields}
    return replace(column, title=f"{column.task} with {describe(changed)}") if changed else column


def _takes(model_class: Any, name: str, value: Any) -> bool:
    try:
        model_class.Settings.check_value(name, value)
    except UsageError:
        return False
    return True


def _rates(settings: type[Settings], rate: float) -> dict[str, str]:
    """Return the learning rates of all parameters but the recurrent matrix."""
    names = [name for name in settings.model_fields if name == RATE or name.endswith("_learning_rate")]
    return {name: _shown(rate) for name in names if name != RECURRENT_RATE}


def _at(rate: float, value: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of a value of the second axis, with the rate of the recurrent matrix for its share."""
    return {name: _shown(rate * float(each)) if name == RECURRENT_RATE else each for name, each in value.items()}


def _shown(rate: float) -> str:
    return f"{rate:.3g}"


@dataclass(frozen=True)
class Point:
    """A point of a search: its rate, the value of the second axis in words, and the settings of both."""

    rate: float
    value: str
    settings: dict[str, str]


@dataclass(frozen=True)
class ModelSize:
    """How large a model is with a value of its second axis.

    Attributes:
        matched: the hidden size and the number that it was chosen for; None for the model's own size.
        parameters: the number of parameters.
        state: how many numbers it carries from step to step; None if they cannot be counted.
    """

    matched: MatchedSize | None
    parameters: int
    state: int | None


@dataclass(frozen=True)
class Entry:
    """A model in a column: its search, and the runs that its winner gets.

    Attributes:
        model: the model's name.
        points: the points of its search; the first ones are tried in any case.
        trials: their runs, with the settings in which they differ.
        sizes: by the value of the second axis.
        iterations: the length of a run.
    """

    column: Column
    model: str
    points: list[Point]
    trials: list[SweepRun]
    sizes: Mapping[str, ModelSize]
    iterations: int

    @property
    def first(self) -> int:
        """The number of trials with which the search begins."""
        return sum(point.rate in FIRST for point in self.points)

    def search(self, store: Store | None) -> RateSearch:
        """Return the state of the search in the database."""
        return search_rates(self.curves(store))

    def curves(self, store: Store | None) -> list[TrialCurve]:
        """Return the validation curves of all points."""
        keys = [run.config.spec.key for run in self.trials]
        runs = {run.key: run for run in store.runs(keys=keys)} if store else {}
        ids = [run.id for run in runs.values()]

        def logged(metric: str) -> dict[int, list[tuple[int, float]]]:
            values: dict[int, list[tuple[int, float]]] = {number: [] for number in ids}
            for row in store.metrics(ids, split=JUDGE, name=metric) if store and ids else ():
                values[row.run_id].append((row.iteration, math.nan if row.value is None else row.value))
            return values

        curves, losses = logged(self.metric.name), logged(LOSS.name)
        return [
            TrialCurve(point.rate, point.value, run, curves[run.id], losses[run.id])
            if (run := runs.get(key))
            else TrialCurve(point.rate, point.value)
            for point, key in zip(self.points, keys, strict=True)
        ]

    def trial(self, curve: TrialCurve) -> SweepRun:
        """Return the run of a trial."""
        return next(
            run
            for point, run in zip(self.points, self.trials, strict=True)
            if (point.rate, point.value) == (curve.rate, curve.value)
        )

    @property
    def metric(self) -> Any:
        """The metric that the search optimises and the table shows."""
        return self.trials[0].config.task_class.main_metric()

    def fresh(self, winner: TrialCurve, seeds: int) -> list[SweepRun]:
        """Return the runs of the winner's settings with the seeds after the search's."""
        config, settings = self.trial(winner)
        spec = config.spec
        training = config.training.model_copy(update={"judged_by": "validation"})
        judged = replace(config, spec=replace(spec, training=training.canonical()))
        return [SweepRun(judged.with_seed(SEARCH_SEED + 1 + number), settings) for number in range(seeds)]

    def search_iterations(self) -> int:
        """Return the iterations of a search that leaves the plateau and adds one rate."""
        return round(self.iterations * (whole_runs(self.first) + 1))


class Planner:
    """Builds the entries of a comparison.

    Args:
        overrides: settings of all runs, as text; they go before the protocol's.
        parameters: a parameter count for all columns, instead of the protocol's.
        state: a number of values that every model carries from step to step, instead of equal parameters.
    """

    def __init__(
        self,
        catalog: Catalog,
        overrides: Mapping[str, Any],
        parameters: int | str | None = None,
        state: int | None = None,
    ) -> None:
        if parameters is not None and state is not None:
            raise UsageError("`match_parameters` and `match_state` both choose the hidden sizes: give one of them")
        self.catalog, self.overrides, self.state = catalog, overrides, state
        self.parameters = None if parameters is None else target_count(parameters, ())
        self.counter = Counter()

    def entry(self, column: Column, model: str) -> Entry:
        """Return the entry of a model in a column.

        Raises:
            UsageError: a setting is unknown or belongs to the protocol, or the model cannot be built or has no size.
        """
        rules = protocol()
        model_class = self.catalog.load("model", model)
        task_class: type[Task] = self.catalog.load("task", column.task)
        points = rules.points(model_class)
        overrides = {SHORT_NAMES.get(name, name): value for name, value in self.overrides.items()}
        self._refuse(overrides, {name for point in points for name in point.settings}, model_class.Settings)
        shared = {**rules.shared_settings(column, task_class, model_class), **overrides, "judged_by": "validation_only"}

        def resolved(point: Point, size: int | None) -> RunConfig:
            sized = {} if size is None else {"hidden_size": size}
            given = {**shared, **point.settings, **sized}
            return resolve(self.catalog, column.task, model, given, seed=SEARCH_SEED, published=False)

        matched: dict[str, MatchedSize | None] = {}
        for point in points:
            if point.value not in matched:
                matched[point.value] = self._match(column, model, model_class, partial(resolved, point), overrides)
        hidden = {value: None if size is None else size.hidden_size for value, size in matched.items()}
        first = resolved(points[0], hidden[points[0].value])
        iterations, shared["evaluate_every"] = self._length(first, "evaluate_every" in overrides)
        runs = [SweepRun(resolved(point, hidden[point.value]), point.settings) for point in points]
        configs = {point.value: run.config for point, run in zip(points, runs, strict=True)}
        sizes = {
            value: ModelSize(matched[value], self.counter.count(config), self._state(config))
            for value, config in configs.items()
        }
        trained = self._trained(column, runs[0].config, overrides, iterations)
        return Entry(trained, model, points, runs, sizes, iterations)

    def _trained(self, column: Column, config: RunConfig, overrides: Mapping[str, Any], iterations: int) -> Column:
        """Return the column with what its runs have, which the user may have set."""
        task, training = config.task_settings, config.training
        given = [name for name in overrides if name in type(task).model_fields]
        return replace(
            column,
            settings={name: getattr(task, name) for name in dict.fromkeys([*column.settings, *given])},
            parameters=None if self.state is not None else self._target(column, overrides),
            iterations=iterations,
            batch_size=training.batch_size,
            solved_at=training.solved_at,
        )

    def _target(self, column: Column, overrides: Mapping[str, Any]) -> int | None:
        """Return the number of parameters, or of values in the state, that all models have; None: their own."""
        if "hidden_size" in overrides:
            return None
        if self.state is not None:
            return self.state
        return column.parameters if self.parameters is None else self.parameters

    def _match(
        self, column: Column, model: str, model_class: Any, resized: Any, overrides: Mapping[str, Any]
    ) -> MatchedSize | None:
        target = self._target(column, overrides)
        if target is None:
            return None
        check_can_match(model, model_class, ())
        count = self.counter.count if self.state is None else self.counter.state_size
        return nearest_size(resized(None), resized, target, count)[1]

    def _state(self, config: RunConfig) -> int | None:
        try:
            return self.counter.state_size(config)
        except UsageError:
            return None

    @staticmethod
    def _length(config: RunConfig, is_fixed: bool) -> tuple[int, int | None]:
        """Return the number of iterations of a run, and `evaluate_every` with an evaluation in the first half.

        Args:
            is_fixed: whether the user has set `evaluate_every`.

        Raises:
            UsageError: the length does not follow from the settings, or the first half has no evaluation.
        """
        training, size = config.training, getattr(config.task_settings, "train_size", None)
        if isinstance(size, int):
            per_epoch = size // training.batch_size
            total = min(training.epochs * per_epoch, training.max_iterations or training.epochs * per_epoch)
        elif training.max_iterations is not None:
            total = per_epoch = training.max_iterations
        else:
            raise UsageError(f"{config.spec.task} does not say how long a run is: set max_iterations")
        every = training.evaluate_every
        if min(every or per_epoch, per_epoch) > HALF * total and not is_fixed:
            every = max(1, total // EVALUATIONS)  # because an epoch of a short run is longer than its half
        if min(every or per_epoch, per_epoch) > HALF * total:
            raise UsageError(
                f"evaluate_every={every} leaves the first half of {total} iterations without an "
                "evaluation, after which the worse half of the trials stops: set a smaller one, or train for longer"
            )
        return total, every

    @staticmethod
    def _refuse(overrides: Mapping[str, Any], searched: set[str], settings: type[Settings]) -> None:
        """Refuse settings that the protocol decides.

        Raises:
            UsageError: one of them is set.
        """
        decided = {*searched, "judged_by", *(name for name in protocol().model if name in ModelSettings.model_fields)}
        decided |= {name for name in settings.model_fields if name.endswith("_optimizer")}
        if taken := sorted(decided & overrides.keys()):
            raise UsageError(
                f"{', '.join(taken)} belongs to the search, which is the same for all models: leave it out"
            )


def describe(settings: Mapping[str, Any]) -> str:
    """Return settings as words of one line."""
    return " ".join(f"{name}={text(value)}" for name, value in settings.items())
