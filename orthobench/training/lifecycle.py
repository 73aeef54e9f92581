"""The lifecycle of a run: lock, resume or start, train, record the end, diagnose a lack of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from orthobench.arguments import OnDivergence
from orthobench.data.folder import use_data_folder
from orthobench.errors import RunLockedError, StorageError, UsageError, one_line
from orthobench.options import RunOptions
from orthobench.recurrence import BackendError
from orthobench.recurrence.backends import forget_used, use_backend
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at
from orthobench.training.devices import pick_device
from orthobench.training.events import EventSink
from orthobench.training.keep import WeightsKeeper
from orthobench.training.locks import lock
from orthobench.training.loop import CheckpointSchedule, Interrupted, TrainingLoop
from orthobench.training.out_of_memory import explain_memory
from orthobench.training.recording import DatabaseSink
from orthobench.training.resume import resume, resumed_backend
from orthobench.training.size import lacks_memory
from orthobench.training.trainer import Trainer
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
    if settled := _settled_run(store, config, checkpoints, options.on_divergence):
        return settled
    with use_data_folder(options.data_folder), store.waiting(should_stop), lock(store, checkpoints):
        if settled := _settled_run(store, config, checkpoints, options.on_divergence):  # while the lock was awaited
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


def is_settled(run: Run, checkpoints: Checkpoints, on_divergence: OnDivergence) -> bool:
    """Return whether training this run again would train nothing."""
    if run.status == Status.DIVERGED and on_divergence == "continue":
        return not checkpoints.exists()
    return Status(run.status).is_final


def _settled_run(store: Store, config: RunConfig, checkpoints: Checkpoints, on_divergence: OnDivergence) -> Run | None:
    """Return the run's record if the run is settled."""
    run = store.find(config.spec.key)
    return run if run is not None and is_settled(run, checkpoints, on_divergence) else None
