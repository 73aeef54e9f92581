"""Who is at a run: one process at a time, held until it ends, however it ends.

Where the database is a server, the server keeps the locks, for every machine. Beside a file they are files.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from orthobench.store import Status, Store
from orthobench.training.checkpoint import Checkpoints, checkpoints_at


@contextmanager
def lock(store: Store, checkpoints: Checkpoints) -> Iterator[None]:
    """Hold the run whose checkpoints these are; others are refused until this ends, however it ends.

    Raises:
        RunLockedError: somebody else holds it.
        UsageError: the folder cannot be written.
    """
    if store.server is None:
        with checkpoints.lock():
            yield
    else:
        with store.server.lock(f"run {checkpoints.key}"):
            yield


def is_locked(store: Store, checkpoints: Checkpoints) -> bool:
    """Whether somebody is working on the run now."""
    return checkpoints.is_locked() if store.server is None else store.server.is_locked(f"run {checkpoints.key}")


def current_status(store: Store, checkpoint_root: Path | str, key: str, status: str) -> str:
    """Return the status of a run; a running run that no process has locked is interrupted."""
    if status == Status.RUNNING and not is_locked(store, checkpoints_at(checkpoint_root, key)):
        return Status.INTERRUPTED
    return status
