"""Copy the kept weights of runs from one database's folder to another's, after their records have been copied."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from orthobench.errors import UsageError
from orthobench.store import Store, Weights, WeightsRow
from orthobench.system.location import Location
from orthobench.weights.weights_files import read_weights, weights_folder


def copy_weights(source: Location, target: Location, store: Store, keys: Iterable[str]) -> tuple[int, int]:
    """Copy the files in the source database's folder; files recorded by a path or a URL stay where they are.

    A file that is missing or has changed is not copied, and its record in the target remains.

    Args:
        source: the database from which the records were copied.
        store: the target database, open.
        keys: the keys of the copied runs.

    Returns:
        The number of copied files, and the number of files that could not be copied.

    Raises:
        StorageError: a file cannot be written.
    """
    copied = missing = 0
    folder = weights_folder(target)
    for run in store.runs(keys=list(keys), brief=True):
        rows = []
        for record in store.weights([run.id]):
            row = _row(record)
            if not is_elsewhere(record):
                try:
                    content = read_weights(source, run.key, record)
                except UsageError:
                    missing += 1
                else:
                    row = replace(row, path=folder.put(record.path.real, content))
                    copied += 1
            rows.append(row)
        if rows and not folder.is_adjacent:
            store.log(run.id, [], [], {}, weights=rows)
    return copied, missing


def is_elsewhere(record: Weights) -> bool:
    """Return whether a file is recorded by a path or a URL instead of its name in the database's folder."""
    return "/" in record.path.real


def _row(record: Weights) -> WeightsRow:
    return WeightsRow(record.kind, record.iteration, record.path, record.sha256, record.bytes)
