"""The lifecycle of a run: lock, resume or start, train, record the end, diagnose a lack of memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress

import torch

from orthobench.errors import RunLockedError, StorageError, UsageError, one_line
from orthobench.recurrence import BackendError
from orthobench.recurrence.backends import forget_used, use_backend
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.devices import BackendName
from orthobench.training.events import EventSink
from orthobench.training.graph import GraphMode
from orthobench.training.keep import WeightsKeeper
from orthobench.training.locks import lock
from orthobench.training.loop import CheckpointSchedule, Interrupted, OnDivergence, TrainingLoop
from orthobench.training.out_of_memory import explain_memory
from orthobench.training.recording import DatabaseSink
from orthobench.training.resume import resume, resumed_backend
from orthobench.training.size import lacks_memory


class OutOfMemory(Exception):
    """The memory was too small; the message names the setting and a value that fits."""


def train(
    config: RunConfig,
    store: Store,
    checkpoints: Checkpoints,
    device: torch.device,
    *,
    sinks: Sequence[EventSink] = (),
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: float = 30.0,
    backend: BackendName = "auto",
    cuda_graph: GraphMode = "auto",
    on_divergence: OnDivergence = "stop",
    tags: Sequence[str] = (),
    keeper: WeightsKeeper | None = None,
) -> Run:
    """Train a run and return its record. A settled run is only looked up; an interrupted run resumes.

    Args:
        sinks: receive the run's events after the database.
        should_stop: called after every iteration; if true, a checkpoint is written and Interrupted raised.
        checkpoint_every: seconds between checkpoints; more where saving takes over a hundredth of the time.
        backend: the kernels of the recurrence.
        cuda_graph: whether the training step runs as a CUDA graph; "auto" where device and model allow it.
        on_divergence: "stop" ends a diverged run; "continue" trains for as long as its weights are finite.
        tags: names added to the run's own; they do not change its key.
        keeper: keeps the run's weights at its end; None keeps nothing.

    Raises:
        RunLockedError: another process trains this run.
        UsageError: the run cannot start, for example because its data is missing.
        StorageError: something cannot be written, or the database server is lost.
        OutOfMemory: the memory is too small; the run is recorded as failed.
        Interrupted: `should_stop` returned true.
    """
    store.tag([config.spec.key], tags)
    if settled := _settled_run(store, config, checkpoints, on_divergence):
        return settled
    with store.waiting(should_stop), lock(store, checkpoints):
        if settled := _settled_run(store, config, checkpoints, on_divergence):  # settled while the lock was awaited
            return settled
        forget_used()
        trainer, checkpoint = resume(config, store, checkpoints, device)
        trainer.use_graph(cuda_graph)
        database = DatabaseSink(store, device, config.sources, tags, trainer.graph is not None)
        trainer.state.segments.append((trainer.rows_end if checkpoint else 0, database.segment_token))
        schedule = CheckpointSchedule(checkpoint_every)
        loop = TrainingLoop(trainer, [database, *sinks], checkpoints, schedule, should_stop, on_divergence, keeper)
        loop.start()
        kind, memory_error = "", None
        try:
            with use_backend(resumed_backend(backend, checkpoint, device, config.spec.key)):
                loop.run(resumed=checkpoint is not None)
        except Interrupted:
            loop.end(Status.INTERRUPTED)
            raise
        except RunLockedError:  # another process has taken the run over, and writes its record
            raise
        except BackendError as error:
            loop.end(Status.FAILED, str(error))
            raise UsageError(f"--backend {backend}: {error}; use --backend auto") from error
        except BaseException as error:
            if lacks_memory(error):
                memory_error = str(error).partition("\n")[0]
                kind = "GPU memory" if isinstance(error, torch.OutOfMemoryError) else "memory"
            else:
                stops = isinstance(error, (KeyboardInterrupt, StorageError))
                with suppress(StorageError):  # nothing can be written
                    loop.end(Status.INTERRUPTED if stops else Status.FAILED, one_line(error))
                raise
        if memory_error is not None:  # outside of the except clause, in which the error holds the tensors
            loop.end(Status.FAILED, memory_error)
            message = explain_memory(loop, kind, memory_error)
            loop.end(Status.FAILED, message)
            raise OutOfMemory(message)
        run = store.find(config.spec.key)
        if run is None or not Status(run.status).is_final:
            raise StorageError(
                f"run {config.spec.key} has ended, but the database does not hold its result: "
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
