"""Resume a run from its checkpoint, as the run that it was."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence

import torch

from orthobench.errors import one_line
from orthobench.options.arguments import BackendName
from orthobench.spec.resolve import RunConfig
from orthobench.store import Store
from orthobench.training.build import build_trainer
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.device import backend_problem
from orthobench.training.state import Checkpoint, kernel_facts
from orthobench.training.trainer import Trainer

Segments = Sequence[tuple[int, str | None]]

_logger = logging.getLogger("orthobench")


def resume(
    config: RunConfig, store: Store, checkpoints: Checkpoints, device: torch.device, new: Trainer | None = None
) -> tuple[Trainer, Checkpoint | None]:
    """Return a trainer in the state of the newest usable checkpoint, and that checkpoint, or else a new trainer.

    A checkpoint that does not fit is removed with a warning. The previous one is tried next, and if that does not fit
    either, the run starts over.

    Args:
        new: the trainer of a new run, if it has already been built.
    """
    key, existing_run = config.spec.key, store.find(config.spec.key)
    if existing_run is None:
        return new or build_trainer(config, device), None
    segments = [(segment.iteration, segment.write_token) for segment in store.segments([existing_run.id])]
    for content in checkpoints.candidates(store.last_iteration(existing_run.id)):
        try:
            checkpoint = Checkpoint.read(content)
        except (TypeError, ValueError) as error:
            problem = str(error)
        else:
            problem = _mismatch(checkpoint, key, segments)
        if not problem:
            _set_threads(checkpoint)
            # A new trainer for each candidate, because a failed restore leaves it in between two states.
            trainer = build_trainer(config, device)
            try:
                trainer.restore(checkpoint)
            except Exception as error:  # a state of a different structure may raise nearly any error
                problem = one_line(error)
            else:
                trainer.state.segments = _before(trainer.rows_end, segments)
                return trainer, checkpoint
        _logger.warning("run %s: a checkpoint is not used and removed: %s", key, problem)
    if existing_run.iterations:
        lost = existing_run.iterations
        _logger.warning("run %s starts over: no checkpoint of its %d iterations can be read", key, lost)
    return build_trainer(config, device), None


def resumed_backend(
    requested: BackendName, checkpoint: Checkpoint | None, device: torch.device, key: str
) -> BackendName:
    """Return the back end for the rest of a run, which is the checkpoint's unless the user chose another one.

    Warn if the back end, torch version, instruction set or kernel code differs from the checkpoint's, because sums are
    then rounded differently.
    """
    if checkpoint is None:
        return requested
    before, now = checkpoint.kernels, kernel_facts()
    saved, backend = set(before["backends"]), requested
    names = ("torch", "cpu_capability") if saved == {"reference"} else ("torch", "cpu_capability", "kernel_code")
    changes = [f"{name} {before[name]} before, {now[name]} now" for name in names if before[name] != now[name]]
    if requested == "auto":
        problems = [(name, reason) for name in sorted(saved) if (reason := backend_problem(name, device))]
        changes += [f"back end {name} before, and now {reason}" for name, reason in problems]
        if not problems and saved == {"reference"}:
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


def _mismatch(checkpoint: Checkpoint, key: str, segments: Segments) -> str:
    """Return why a checkpoint does not belong to this run or to the rows in the database; "" if it does.

    Its rows come from the segments that began before its newest row, and the tokens of these segments identify them.
    The rows themselves cannot, because rows from two machines may agree at one iteration and differ at others.
    """
    if checkpoint.key != key:
        return f"it belongs to run {checkpoint.key}"
    newest = max(checkpoint.logged, 1)  # the rows of iteration 0 come from the first segment
    if _before(newest, checkpoint.segments) != _before(newest, segments):
        return "the database has the rows of another process, perhaps merged from another machine"
    return ""


def _before(iteration: int, segments: Segments) -> list[tuple[int, str | None]]:
    """Return the segments that began before an iteration."""
    return [(first, token) for first, token in segments if first < iteration]


def _set_threads(checkpoint: Checkpoint) -> None:
    """Use the checkpoint's number of threads, because torch splits sums over threads, which affects the rounding."""
    if 1 <= checkpoint.threads <= (os.cpu_count() or 1):
        torch.set_num_threads(checkpoint.threads)
