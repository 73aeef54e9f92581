"""Events of a training run, and the sinks that receive them.

A run sends every event to all its sinks in order. The database, the progress display, pruning and a worker's messages
are sinks. To add an exporter, write a subclass of `EventSink` and add it to the list of sinks.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Self

from orthobench.metric import run_columns
from orthobench.spec.resolve import RunConfig, RunSpec
from orthobench.store import MetricRow, Run, Status, TraceRow, WeightsRow


@dataclass(frozen=True)
class RunStart:
    """The record of a run at its start.

    Attributes:
        metric: name of the task's main metric.
        metrics: the declarations of the task's metrics by name, as the database stores them.
        preset: the preset of the command that asked for the run; None in records older than this column.
        baselines: the score of the best predictor without memory, by metric: on the run's own sequences where the task
            has one (`Task.constant`), also by "valid/" and a metric on those of validation.
        total_iterations: iterations of the whole run.
    """

    spec: RunSpec
    device: str
    metric: str
    goal: str
    metrics: Mapping[str, Any] | None
    preset: str | None = None
    parameter_count: int = 0
    baselines: Mapping[str, float] = field(default_factory=dict)
    total_iterations: int = 0
    iterations_per_epoch: int = 1

    @classmethod
    def of(cls, config: RunConfig, device: str, **measures: Any) -> Self:
        """Return the record of a run; a run that failed before its model was built has no `measures`."""
        return cls(config.spec, device, **run_columns(config.task_class.metrics), preset=config.preset, **measures)

    @classmethod
    def of_run(cls, run: Run) -> Self:
        """Return the record of a stored run."""
        names = (member.name for member in fields(cls) if member.name != "spec")
        return cls(RunSpec(**run.spec), **{name: getattr(run, name) for name in names})

    @property
    def key(self) -> str:
        """The key of the run."""
        return self.spec.key

    def columns(self) -> dict[str, Any]:
        """Return the columns of the run in the database."""
        own = {name: value for name, value in vars(self).items() if name != "spec"}
        return self.spec.record() | own | {"baselines": dict(self.baselines), "backend": None}


@dataclass(frozen=True)
class RunProgress:
    """The columns of a run that change while it trains; `seconds` by phase and their clock, `peak_memory` in bytes."""

    iterations: int
    backend: str | None
    best_value: float | None
    best_iteration: int | None
    seconds: Mapping[str, float | str]
    peak_memory: int | None


@dataclass(frozen=True)
class Evaluation:
    """The results of an evaluation.

    Attributes:
        rows: training loss, test and validation metrics, and probe values.
        vectors: the vectors of the probes and of the metric over length.
        value: the test metric; None if it is not finite, or if the run has no tests.
        solved: whether the metric reached `solved_at`, so that the run ends here.
        judge: the split, "test" or "valid", that decides so.
    """

    iteration: int
    epoch: int
    rows: Sequence[MetricRow]
    vectors: Sequence[TraceRow]
    value: float | None
    progress: RunProgress
    solved: bool = False
    judge: str = "test"

    @property
    def loss(self) -> float | None:
        """The mean training loss since the previous evaluation; None before the first iteration."""
        return next((row.value for row in self.rows if row.split == "train"), None)

    @property
    def metrics(self) -> dict[str, float]:
        """The test metrics by name."""
        return self.metrics_of("test")

    def metrics_of(self, split: str) -> dict[str, float]:
        """Return the metrics of a split by name."""
        return {row.name: row.value for row in self.rows if row.split == split}


@dataclass(frozen=True)
class RunEnd:
    """The end of a run, or of its part in this process, with status, cause, final metrics and files.

    Attributes:
        weights: the files of the run's weights and training state.
    """

    status: Status
    message: str | None
    rows: Sequence[MetricRow]
    progress: RunProgress
    weights: Sequence[WeightsRow] = ()


class EventSink:
    """A receiver of a run's events. Subclasses override the methods that they need.

    An exception from a sink ends the run.
    """

    def on_start(self, start: RunStart) -> None:
        """Receive the record of the run, before its first iteration in this process."""

    def on_resume(self, iteration: int) -> None:
        """Drop all rows after `iteration`, from which the run continues, or all rows if it is -1."""

    def on_iteration(self, iteration: int) -> None:
        """Receive the number of completed iterations, after each iteration."""

    def on_evaluation(self, evaluation: Evaluation) -> None:
        """Receive the results of an evaluation."""

    def on_final_metrics(self, done: int, total: int) -> None:
        """Receive the progress of the final metrics, as `done` of `total` parts."""

    def on_end(self, end: RunEnd) -> None:
        """Receive the end of the run in this process."""


class Relay(EventSink):
    """A sink that passes on every event in one way. Subclasses define `relay`."""

    def relay(self, event: str, *content: Any) -> None:
        """Pass on an event: the name of its method, and the arguments."""
        raise NotImplementedError


def _relaying(event: str) -> Callable[..., None]:
    return lambda sink, *content: sink.relay(event, *content)


for _event in vars(EventSink):
    if _event.startswith("on_"):
        setattr(Relay, _event, _relaying(_event))


class Tee(Relay):
    """A sink that passes each event on to several sinks, in order."""

    def __init__(self, *sinks: EventSink) -> None:
        self.sinks = sinks

    def relay(self, event: str, *content: Any) -> None:
        for sink in self.sinks:
            getattr(sink, event)(*content)
