"""Locks and states of runs. Only one process at a time trains a run, and its lock is freed when the process ends.

A database server keeps the locks for all machines; for a database file, the locks are files next to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from orthobench.arguments import OnDivergence
from orthobench.location import Location
from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at


@contextmanager
def lock(store: Store, checkpoints: Checkpoints) -> Iterator[None]:
    """Lock the run of these checkpoints until the context ends.

    Raises:
        RunLockedError: another process has locked the run.
        StorageError: the folder cannot be written.
    """
    if store.server is None:
        with checkpoints.lock():
            yield
    else:
        with store.server.lock(f"run {checkpoints.key}"):
            yield


def is_locked(store: Store, checkpoints: Checkpoints) -> bool:
    """Return whether a process is training the run."""
    return checkpoints.is_locked() if store.server is None else store.server.is_locked(f"run {checkpoints.key}")


def is_settled(run: Run, checkpoints: Checkpoints, on_divergence: OnDivergence) -> bool:
    """Return whether training this run again would train nothing."""
    if run.status == Status.DIVERGED and on_divergence == "continue":
        return not checkpoints.exists()
    return Status(run.status).is_final


def settled_run(store: Store, checkpoints: Checkpoints, on_divergence: OnDivergence) -> Run | None:
    """Return the record of the run of these checkpoints if the run is settled."""
    run = store.find(checkpoints.key)
    return run if run is not None and is_settled(run, checkpoints, on_divergence) else None


def current_status(store: Store, checkpoint_root: Path | Location, key: str, status: str) -> str:
    """Return the status of a run; a run recorded as running that no process has locked is interrupted."""
    if status == Status.RUNNING and not is_locked(store, checkpoints_at(checkpoint_root, key)):
        return Status.INTERRUPTED
    return status


def status_in(store: Store, location: Location) -> Callable[[Run], str]:
    """Return a function that returns the current status of a run in the database at this location."""
    root = checkpoint_root(location)
    return lambda run: current_status(store, root, run.key, run.status)
