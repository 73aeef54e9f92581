"""A run as destinations receive it: name, hyper-parameters, state and series."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from orthobench.metric import LENGTHS, TRAINED_LENGTHS
from orthobench.settings import Scalar, merged_settings, text
from orthobench.store import Run, Status, Store

LoggedPoints = dict[tuple[str, int], float]
"""Values by series and iteration."""


@dataclass(frozen=True)
class RunRecord:
    """A run without its numbers.

    Attributes:
        settings: task, model, versions, seed, and every setting; None and lists as written on the command line.
        facts: other properties, such as the device and the number of parameters.
        message: the cause of the status, or "".
    """

    key: str
    settings: Mapping[str, Scalar]
    facts: Mapping[str, Scalar]
    tags: Sequence[str]
    status: str
    message: str
    started_at: datetime
    updated_at: datetime

    @classmethod
    def of(cls, run: Run, status: str | None = None) -> RunRecord:
        """Return the record of a stored run; `status` replaces the stored status if that is out of date."""
        spec = run.spec
        settings = {name: spec[name] for name in ("task", "model", "seed", "task_version", "model_version")}
        settings |= merged_settings(spec)
        facts = {
            "variant": run.variant,
            "condition": run.condition,
            "preset": run.preset,
            "device": run.device,
            "parameter_count": run.parameter_count,
            "iterations_per_epoch": run.iterations_per_epoch,
            "total_iterations": run.total_iterations,
        }
        return cls(
            run.key,
            {name: _scalar(value) for name, value in settings.items()},
            {name: _scalar(value) for name, value in facts.items()},
            tuple(run.tags),
            str(status or run.status),
            run.message or "",
            run.created_at,
            run.updated_at,
        )

    @property
    def is_running(self) -> bool:
        """Whether the run has not ended."""
        return self.status == Status.RUNNING


def read_points(store: Store, run: Run, since: int = 0) -> LoggedPoints:
    """Return a run's values by series and iteration, from iteration `since` on, in the order of iterations.

    A metric's series is called `metric/split`, such as `mse/test`, and a probe's number has the probe's name. A vector
    has four series, its first, last, smallest and largest entry, such as `gradient_norm/h/first`. The first entry of a
    metric over length belongs to the shortest test sequences; the lengths themselves are left out.
    """
    points: LoggedPoints = {}
    for _, split, name, _, iteration, value in store.metric_values([run.id], since):
        points[name if split == "probe" else f"{name}/{split}", iteration] = value
    for trace in store.traces([run.id], since=since):
        if trace.name in (LENGTHS, TRAINED_LENGTHS):
            continue
        for part, value in _summary(trace.values):
            points[f"{trace.name}/{part}", trace.iteration] = value
    return dict(sorted(points.items(), key=lambda point: (point[0][1], point[0][0])))


def _summary(values: Sequence[float]) -> Iterator[tuple[str, float]]:
    numbers = [float(value) for value in values]
    if numbers:
        finite = [number for number in numbers if not math.isnan(number)] or numbers
        yield from (("first", numbers[0]), ("last", numbers[-1]), ("least", min(finite)), ("largest", max(finite)))


def _scalar(value: Any) -> Scalar:
    return value if isinstance(value, (bool, int, float, str)) else text(value)
