"""A run's key, status and speed, and the numbers, vectors and files that it logs, without SQLAlchemy.

A database may come from anywhere, so its keys are checked before they become paths.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from orthobench.errors import DamagedError
from orthobench.system.location import Location

_KEY = re.compile(r"[0-9a-f]{16}")
_PLAIN = re.compile(r"[0-9A-Za-z_-]{1,64}")


def is_key(text: object) -> bool:
    """Return whether a value is the key of a run: a text of 16 hexadecimal digits."""
    return isinstance(text, str) and _KEY.fullmatch(text) is not None


def check_key(key: object) -> None:
    """Refuse a value that is not the key of a run.

    Raises:
        ValueError: the value is not a text, or another text.
    """
    if not is_key(key):
        raise ValueError(f"its key {str(key)[:40]!r} is not 16 hexadecimal digits")


def as_name(key: str) -> str:
    """Return a key as the name of a file or folder, after checking that it cannot lead out of its folder.

    Raises:
        DamagedError: the key has other characters than ASCII letters, digits, _ and -.
    """
    if not _PLAIN.fullmatch(key):
        raise DamagedError(
            f"the database is damaged: a run's key {key[:40]!r} is not 16 hexadecimal digits and names no file; "
            "restore a backup"
        )
    return key


class Status(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        """Whether the run has a result, so that the same command trains nothing. Divergence is a result."""
        return self in (Status.FINISHED, Status.DIVERGED)


CPU_SECONDS = "cpu"
"""The entry of a run's seconds that is not a phase: CPU seconds of its process, over all phases and threads."""


CLOCK, EVENTS = "clock", "events"
"""The entry of a run's seconds that says how the phases on a GPU were timed, and its only value."""
UNTIMED = (
    "On a GPU, the seconds of the phases are left out unless they were measured with events: a clock of the host "
    "charges queued work to the phase that waits for it."
)


SEVERAL_MACHINES = (
    "A run that several machines have trained has no time, because its seconds are stored as a sum over all of them."
)


def wall_seconds(seconds: Mapping[str, Any]) -> float:
    """Return the wall-clock seconds of all phases of a run, which are true on any device."""
    return float(sum(value for phase, value in seconds.items() if phase not in (CPU_SECONDS, CLOCK)))


def is_timed(seconds: Mapping[str, Any], device: str) -> bool:
    """Return whether the seconds of single phases are true: on a CPU, or if events of the GPU measured them."""
    return device == "cpu" or seconds.get(CLOCK) == EVENTS


def times_of_phases(seconds: Mapping[str, Any], device: str) -> dict[str, float]:
    """Return the wall-clock seconds by phase; empty if they are not true (`is_timed`)."""
    known = seconds if is_timed(seconds, device) else {}
    return {phase: value for phase, value in known.items() if phase not in (CPU_SECONDS, CLOCK)}


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
