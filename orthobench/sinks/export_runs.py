"""Send stored runs to a destination; exporting again adds nothing twice."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from orthobench.errors import StorageError, counted, one_line
from orthobench.sinks.destination import Change
from orthobench.sinks.run_record import RunRecord, read_points
from orthobench.sinks.targets import Target
from orthobench.store import Run, Store


@dataclass(frozen=True)
class ExportedRuns:
    """The result of an export: the number of runs by what changed at the destination."""

    target: Target
    counts: Counter[Change]

    def __str__(self) -> str:
        total = sum(self.counts.values())
        parts = ", ".join(f"{self.counts[change]} {change}" for change in Change if self.counts[change])
        return f"{counted(total, 'run')} in {self.target}: {parts}"


def export(
    store: Store, runs: Sequence[Run], target: Target, status_of: Callable[[Run], str] = lambda run: run.status
) -> ExportedRuns:
    """Send runs to a destination, which afterwards has exactly the database's points of each.

    Args:
        status_of: returns the status of a run, in case the stored one is out of date.

    Raises:
        StorageError: the destination cannot be used or fails.
    """
    counts: Counter[Change] = Counter()
    try:
        destination = target.open()
        for run in runs:
            record = RunRecord.of(run, status_of(run))
            writer = destination.open(record, read_points(store, run))
            writer.end(record)
            counts[writer.change] += 1
    except Exception as error:
        raise StorageError(f"{target} cannot be written ({one_line(error)}): fix it and export again") from error
    return ExportedRuns(target, counts)
