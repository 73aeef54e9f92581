"""What every destination offers: to hold a run with exactly the database's points."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from orthobench.sinks.record import Points, RunRecord


class Change(StrEnum):
    """What the opening of a run changed at its destination."""

    ADDED = "added"
    CONTINUED = "continued"  # points or a state were missing
    REPLACED = "replaced"  # the destination had points that the database has not
    UNCHANGED = "unchanged"


class RunWriter(Protocol):
    """Writes one run.

    Attributes:
        change: what the opening of the run changed.
    """

    change: Change

    def add(self, points: Points) -> None:
        """Append points, in the order of iterations."""

    def end(self, record: RunRecord) -> None:
        """Write the run's last state, and close the run."""


class Destination(Protocol):
    """A place that receives runs. Any method may raise any exception: the caller keeps it from the training."""

    def open(self, record: RunRecord, points: Points) -> RunWriter:
        """Return a writer of the run, which now has exactly these points at the destination."""
        ...
