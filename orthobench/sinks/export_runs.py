"""Send stored runs to a destination."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from orthobench.errors import StorageError, one_line
from orthobench.sinks.run_record import RunRecord, read_points
from orthobench.sinks.targets import Target
from orthobench.store import Run, Store


def export(
    store: Store, runs: Sequence[Run], target: Target, status_of: Callable[[Run], str] = lambda run: run.status
) -> None:
    """Send runs to a destination, each as a new run; TensorBoard's replaces the one that was sent before.

    Args:
        status_of: returns the status of a run, in case the stored one is out of date.

    Raises:
        StorageError: the destination cannot be used or fails.
    """
    try:
        destination = target.open()
        for run in runs:
            record = RunRecord.of(run, status_of(run))
            writer = destination.open(record)
            writer.add(read_points(store, run))
            writer.end(record)
    except Exception as error:
        raise StorageError(f"{target} cannot be written ({one_line(error)}): fix it and export again") from error
