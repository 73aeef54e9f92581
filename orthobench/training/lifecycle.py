"""The lifecycle of a run: lock, resume or start, train, record the end, diagnose a lack of memory.

A run resumes from the newest checkpoint that belongs to it, to its rows and to the kernels of this machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from orthobench.arguments import BackendName
from orthobench.data.folder import use_data_folder
from orthobench.errors import RunLockedError, StorageError, UsageError, one_line
from orthobench.options import RunOptions
from orthobench.recurrence import BackendError
from orthobench.recurrence.runtime import forget_used, use_backend
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at
from orthobench.training.devices import backend_problem, make_trainer, pick_device
from orthobench.training.events import EventSink
from orthobench.training.keep import WeightsKeeper
from orthobench.training.locks import lock, settled_run
from orthobench.training.loop import CheckpointSchedule, Interrupted, TrainingLoop
from orthobench.training.recording import DatabaseSink
from orthobench.training.size import lacks_memory
from orthobench.training.trainer import Checkpoint, Trainer, kernels
from orthobench.weights.folder import weights_folder

DEFAULTS = RunOptions()


class OutOfMemory(Exception):
    """The memory is too small; the message names the setting and a value that fits."""


def train(
    config: RunConfig,
    store: Store,
    options: RunOptions = DEFAULTS,
    sinks: Sequence[EventSink] = (),
    should_stop: Callable[[], bool] = lambda: False,
    trainer: Trainer | None = None,
) -> Run:
    """Train a run and return its record. A settled run is only looked up, and an interrupted run is resumed.

    Args:
        options: how the run is executed. The plugins come from `config` instead, and the events go to `sinks`.
        sinks: receive the run's events after the database.
        should_stop: called after every iteration; if true, a checkpoint is written and Interrupted raised.
        trainer: the trainer of a run that is not yet in the database, if it has already been built.

    Raises:
        RunLockedError: another process trains this run.
        UsageError: the run cannot start, for example because its data is missing.
        StorageError: something cannot be written, or the database server is lost.
        OutOfMemory: the memory is too small; the run is recorded as failed.
        Interrupted: `should_stop` returned true.
    """
    key, database, device = config.spec.key, store.location, pick_device(options.device)
    root = checkpoint_root(database, options.checkpoints)
    checkpoints = checkpoints_at(root, key)
    keeper = WeightsKeeper(options.keep_weights, weights_folder(database, options.weights, root))
    store.tag([key], options.tags)
    if settled := settled_run(store, checkpoints, options.on_divergence):
        return settled
    with use_data_folder(options.data_folder), store.waiting(should_stop), lock(store, checkpoints):
        if settled := settled_run(store, checkpoints, options.on_divergence):  # while the lock was awaited
            return settled
        forget_used()
        trainer, checkpoint = resume(config, store, checkpoints, device, trainer)
        trainer.use_graph(options.cuda_graph)
        rows = DatabaseSink(store, device, config.sources, options.tags, trainer.graph is not None)
        trainer.state.segments.append((trainer.rows_end if checkpoint else 0, rows.segment_token))
        schedule = CheckpointSchedule(options.checkpoint_every)
        loop = TrainingLoop(trainer, [rows, *sinks], checkpoints, schedule, should_stop, options.on_divergence, keeper)
        loop.start()
        kind, memory_error = "", None
        try:
            with use_backend(resumed_backend(options.backend, checkpoint, device, key)):
                loop.run(resumed=checkpoint is not None)
        except Interrupted:
            loop.end(Status.INTERRUPTED)
            raise
        except RunLockedError:  # another process has taken over the run, and writes its record
            raise
        except BackendError as error:
            loop.end(Status.FAILED, str(error))
            raise UsageError(f"`backend={options.backend!r}`: {error}; use `backend='auto'`") from error
        except BaseException as error:
            if lacks_memory(error):
                memory_error = str(error).partition("\n")[0]
                kind = "GPU memory" if isinstance(error, torch.OutOfMemoryError) else "memory"
            else:
                stops = isinstance(error, (KeyboardInterrupt, StorageError))
                with suppress(StorageError):  # nothing can be written
                    loop.end(Status.INTERRUPTED if stops else Status.FAILED, one_line(error))
                raise
        if memory_error is not None:  # outside the except clause, where the error still holds the tensors
            from orthobench.training.out_of_memory import explain_memory

            loop.end(Status.FAILED, memory_error)
            message = explain_memory(loop, kind, memory_error)
            loop.end(Status.FAILED, message)
            raise OutOfMemory(message)
        run = store.find(key)
        if run is None or not Status(run.status).is_final:
            raise StorageError(
                f"run {key} has ended, but the database does not hold its result: "
                "the checkpoint is kept, run the same command again"
            )
        if not loop.keep_checkpoint:
            checkpoints.clear()
    return run


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
        return new or make_trainer(config, device), None
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
            trainer = make_trainer(config, device)
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
    return make_trainer(config, device), None


def resumed_backend(
    requested: BackendName, checkpoint: Checkpoint | None, device: torch.device, key: str
) -> BackendName:
    """Return the back end for the rest of a run, which is the checkpoint's unless the user chose another one.

    Warn if the back end, torch version, instruction set or kernel code differs from the checkpoint's, because sums are
    then rounded differently.
    """
    if checkpoint is None:
        return requested
    before, now = checkpoint.kernels, kernels()
    saved, backend = set(before["backends"]), requested
    names = ("torch", "cpu_capability") if saved == {"reference"} else ("torch", "cpu_capability", "kernel_code")
    changes = [f"{name} {before[name]} before, {now[name]} now" for name in names if before[name] != now[name]]
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
