"""The lifecycle of a run: lock, resume or start, train, record the end.

A run resumes from the newest checkpoint that belongs to it, to its rows and to the kernels of this machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from orthobench.errors import RunLockedError, StorageError, UsageError, lacks_memory, one_line
from orthobench.isolation import isolated
from orthobench.options.run_options import RunOptions
from orthobench.recurrence import BackendError
from orthobench.recurrence.backends import forget_used, use_backend
from orthobench.spec.resolve import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.system.own_code import described
from orthobench.training.checkpoint import lock, places
from orthobench.training.device import pick_device
from orthobench.training.events import EventSink
from orthobench.training.loop import CheckpointSchedule, Interrupted, TrainingLoop
from orthobench.training.recording import DatabaseSink, WeightsKeeper
from orthobench.training.resume import resume, resumed_backend
from orthobench.training.settled import settled_run
from orthobench.training.trainer import Trainer

DEFAULTS = RunOptions()


class OutOfMemory(Exception):
    """The memory is too small; the message names the setting that may help."""


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
        trainer: the trainer of a run that is not yet in the database, if it has already been built in the same block of
            `isolated`, whose generators are where building left them.

    Raises:
        RunLockedError: another process trains this run.
        UsageError: the run cannot start, for example because its data is missing.
        StorageError: something cannot be written, or the database server is lost.
        OutOfMemory: the memory is too small; the run is recorded as failed.
        Interrupted: `should_stop` returned true.
    """
    key, device = config.spec.key, pick_device(options.device)
    checkpoints, folder = places(store.location, options, key)
    keeper = WeightsKeeper(options.keep_weights, folder)
    # `waiting` comes before the lock, because a server's lock is a query that waits for a
    # lost server, and Ctrl-C has to end it.
    with isolated(), store.waiting(should_stop), lock(store, checkpoints):
        # Under the lock, because another process may have finished the run since the caller looked it up.
        if settled := settled_run(store, checkpoints, options.on_divergence):
            if settled.status == Status.FINISHED:  # its process may have died before it removed them
                checkpoints.clear()
            return settled
        # Only here, because the lock tells that no other process is writing them; one that was killed has left them.
        folder.remove_parts(key)
        # The record is the thread's, and is emptied because an earlier run of this
        # process may have used other back ends.
        forget_used()
        trainer, checkpoint = resume(config, store, checkpoints, device, trainer)
        trainer.use_graph(options.cuda_graph)
        rows = DatabaseSink(store, device, config.sources, options.tags, trainer.graph is not None)
        trainer.state.segments.append((trainer.rows_end if checkpoint else 0, rows.segment_token))
        schedule = CheckpointSchedule(options.checkpoint_every)
        loop = TrainingLoop(trainer, [rows, *sinks], checkpoints, schedule, should_stop, options.on_divergence, keeper)
        loop.start()
        lack = ""
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
                lack = _lack_of_memory(trainer, error)
            else:
                is_stop = isinstance(error, (KeyboardInterrupt, StorageError))
                status, reason = (Status.INTERRUPTED, one_line) if is_stop else (Status.FAILED, described)
                with suppress(StorageError):  # nothing can be written
                    loop.end(status, reason(error))
                raise
        if lack:  # outside the except clause, where the error still holds the tensors
            loop.end(Status.FAILED, lack)
            raise OutOfMemory(lack)
        # Read back before the checkpoint goes, because the checkpoint is the only other copy of a training of hours.
        run, file = store.find(key), store.location.file
        is_deleted = file is not None and not file.exists()  # SQLite goes on to write to a file that has no name
        if run is None or not Status(run.status).is_final or is_deleted:
            raise StorageError(
                f"run {key} has ended, but the database does not hold its result: "
                "the checkpoint is kept, run the same command again"
            )
        if not loop.keep_checkpoint:
            checkpoints.clear()
    return run


def _lack_of_memory(trainer: Trainer, error: BaseException) -> str:
    """Return what did not fit, and the setting that decides how much memory this phase takes."""
    phase, kind = trainer.timer.phase, "GPU memory" if isinstance(error, torch.OutOfMemoryError) else "memory"
    what, cause = f"out of {kind} at iteration {trainer.state.iteration}", str(error).partition("\n")[0]
    if phase != "train" and phase != "test" and not phase.startswith("probe "):
        return f"{what} ({phase}): {cause}"
    setting = "evaluation_batch_size" if phase == "test" else "batch_size"
    return f"{what} with {setting}={getattr(trainer.training, setting)}: choose a smaller one ({cause})"
