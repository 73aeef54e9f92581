"""Resume a run: find the newest checkpoint that belongs to it, to its rows and to the kernels of this machine."""

from __future__ import annotations

import logging
import os
from typing import Any

import torch

from orthobench.spec import RunConfig
from orthobench.store import Run, Store
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.devices import BackendName, backend_problem, make_trainer
from orthobench.training.trainer import FORMAT, Checkpoint, Trainer, kernels

_logger = logging.getLogger("orthobench")


def resume(
    config: RunConfig, store: Store, checkpoints: Checkpoints, device: torch.device
) -> tuple[Trainer, Checkpoint | None]:
    """Return a trainer in the state of the newest usable checkpoint, and that checkpoint; else a new trainer.

    A checkpoint that does not fit is removed, with a warning: the previous one is tried, then the run starts over.
    """
    key, existing_run = config.spec.key, store.find(config.spec.key)
    if existing_run is None:
        return make_trainer(config, device), None
    for content in checkpoints.candidates(store.last_iteration(existing_run.id)):
        problem = _mismatch(content, key, existing_run, store)
        if not problem:
            checkpoint = Checkpoint(**content)
            _set_threads(checkpoint)
            trainer = make_trainer(config, device)
            try:
                trainer.restore(checkpoint)
            except Exception as error:  # another structure raises nearly any error
                problem = f"{type(error).__name__}: {error}".splitlines()[0]
            else:
                return trainer, checkpoint
        _logger.warning("run %s: a checkpoint is not used and removed: %s", key, problem)
    if existing_run.iterations:
        lost = existing_run.iterations
        _logger.warning("run %s starts over: no checkpoint of its %d iterations can be read", key, lost)
    return make_trainer(config, device), None


def resumed_backend(
    requested: BackendName, checkpoint: Checkpoint | None, device: torch.device, key: str
) -> BackendName:
    """Return the back end for the rest of a run: the checkpoint's, unless the user requested another.

    Warns where the rest uses another back end, torch version or instruction set than the checkpoint: sums are then
    rounded differently.
    """
    if checkpoint is None or checkpoint.kernels is None:
        return requested
    before, now = checkpoint.kernels, kernels()
    saved, backend = set(before["backends"]), requested
    changes = [
        f"{name} {before[name]} before, {now[name]} now"
        for name in ("torch", "cpu_capability")
        if before[name] != now[name]
    ]
    if requested == "auto":
        missing = [f"{name} ({reason})" for name in sorted(saved) if (reason := backend_problem(name, device))]
        if missing:
            changes.append(f"back end {', '.join(missing)} cannot serve here")
        elif saved == {"reference"}:
            backend = "reference"
    elif saved - {requested}:
        changes.append(f"back end {', '.join(sorted(saved))} before, {requested} now")
    if changes:
        _logger.warning(
            "run %s resumes on other kernels (%s): its numbers may differ in the last digits from those of an "
            "uninterrupted run; the record keeps both",
            key,
            "; ".join(changes),
        )
    return backend


def _mismatch(content: dict[str, Any], key: str, run: Run, store: Store) -> str:
    """Return why a checkpoint does not belong to this run or to the rows in the database; "" if it does."""
    if content.get("format", FORMAT) > FORMAT:
        return f"its format {content['format']} is newer than this orthobench's {FORMAT}"
    if content.get("key", key) != key:
        return f"it belongs to run {content['key']}"
    rows = content.get("rows")
    if rows is not None:
        logged = store.metrics([run.id], iteration=content["logged"])
        if {(row.split, row.name, row.value) for row in logged} != set(rows):
            return "the database has other rows at its iteration, perhaps merged from another machine"
    return ""


def _set_threads(checkpoint: Checkpoint) -> None:
    """Use the checkpoint's number of threads: torch splits its sums over threads, which rounds them."""
    if 1 <= checkpoint.threads <= (os.cpu_count() or 1):
        torch.set_num_threads(checkpoint.threads)
