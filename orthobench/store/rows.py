"""Numbers, vectors and files of weights that a run logs, and the numbers and vectors that the database returns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orthobench.location import Location


@dataclass(frozen=True)
class MetricRow:
    """A number to log; `split` is "train", "test", "valid" or "probe"."""

    split: str
    name: str
    epoch: int
    iteration: int
    value: float


@dataclass(frozen=True)
class TraceRow:
    """A vector to log."""

    name: str
    epoch: int
    iteration: int
    values: Sequence[float]


@dataclass(frozen=True)
class MetricValue(MetricRow):
    """A stored number of the run with the id `run_id`."""

    run_id: int


@dataclass(frozen=True)
class Trace(TraceRow):
    """A stored vector of the run with the id `run_id`, such as ||dL/dh_t|| for every t."""

    run_id: int


@dataclass(frozen=True)
class WeightsRow:
    """A file of weights or of training state to record; the fields have the same meaning as in `Weights`."""

    kind: str
    iteration: int
    path: Location
    sha256: str
    bytes: int
