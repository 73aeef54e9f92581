"""The interface of destinations, each of which holds a run with exactly the database's points."""

from __future__ import annotations

from enum import StrEnum
from typing import Protocol

from orthobench.sinks.run_record import LoggedPoints, RunRecord


class Change(StrEnum):
    """What opening a run changed at its destination."""

    ADDED = "added"
    CONTINUED = "continued"  # points or a state were missing
    REPLACED = "replaced"  # the destination had points that are not in the database
    UNCHANGED = "unchanged"


class RunWriter(Protocol):
    """Writes one run.

    Attributes:
        change: what opening the run changed.
    """

    change: Change

    def add(self, points: LoggedPoints) -> None:
        """Append points, in the order of iterations."""

    def end(self, record: RunRecord) -> None:
        """Write the run's final state and close the run."""


class Destination(Protocol):
    """A place that receives runs. Any method may raise any exception; the caller shields training from it."""

    def open(self, record: RunRecord, points: LoggedPoints) -> RunWriter:
        """Open the run so that the destination has exactly these points, and return a writer."""
        ...
