"""The status and the speed of a run, which need no SQLAlchemy."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum


class Status(StrEnum):
    """The status of a run."""

    RUNNING = "running"
    FINISHED = "finished"
    DIVERGED = "diverged"
    FAILED = "failed"
    INTERRUPTED = "interrupted"

    @property
    def is_final(self) -> bool:
        """Return whether the run has a result, so that the same command trains nothing. Divergence is a result."""
        return self in (Status.FINISHED, Status.DIVERGED)


CPU_SECONDS = "cpu"
"""The entry of a run's seconds that is no phase: CPU seconds of its process, all phases and threads together."""


def wall_seconds(seconds: Mapping[str, float]) -> float:
    """Return the seconds of all phases of a run, by the clock."""
    return float(sum(value for phase, value in seconds.items() if phase != CPU_SECONDS))


def seconds_per_epoch(seconds: Mapping[str, float], iterations: int, iterations_per_epoch: int) -> float | None:
    """Return the seconds of an epoch's training, without tests, probes and logging."""
    training = seconds.get("train")
    return training / (iterations / iterations_per_epoch) if training and iterations else None
