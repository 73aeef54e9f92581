"""Rows that a run logs: numbers, vectors, and files of weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class MetricRow:
    """A number to log; split is "train", "test", "valid" or "probe"."""

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
class WeightsRow:
    """A file of weights or of training state to record; the fields are those of `Weights`."""

    kind: str
    iteration: int
    path: str
    sha256: str
    bytes: int
