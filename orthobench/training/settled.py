"""Whether a run has a result that stands, and what its status is now."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from orthobench.options.arguments import OnDivergence
from orthobench.store import Run, Status, Store
from orthobench.system.location import Location
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at, is_locked


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
