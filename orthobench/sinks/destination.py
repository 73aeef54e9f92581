"""The interface of destinations, to which runs are sent."""

from __future__ import annotations

from typing import Protocol

from orthobench.sinks.run_record import LoggedPoints, RunRecord


class RunWriter(Protocol):
    """Writes one run."""

    def add(self, points: LoggedPoints) -> None:
        """Append points, in the order of iterations."""

    def end(self, record: RunRecord) -> None:
        """Write the run's final state and close the run."""


class Destination(Protocol):
    """A place that receives runs. Any method may raise any exception; the caller shields training from it."""

    def open(self, record: RunRecord) -> RunWriter:
        """Begin a new run and return its writer. What was sent before stays as it is, except in TensorBoard."""
        ...
