"""Carry out a run, whatever comes: it is somebody else's, it is stopped, it fails, memory does not do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Literal

import torch

from orthobench.errors import RunLockedError, StorageError, UsageError
from orthobench.recurrence.dispatch import chosen, forget_used, use_backend
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import Checkpoints
from orthobench.training.events import Observer
from orthobench.training.locks import lock
from orthobench.training.out_of_memory import explain_memory
from orthobench.training.trainer import Interrupted, OnDivergence, Trainer

DeviceName = Literal["auto", "cpu", "cuda"]
BackendName = Literal["auto", "reference", "portable", "cpu", "cuda"]


class OutOfMemory(Exception):
    """The accelerator's memory did not do; the message says for what, and what would fit."""


def pick_device(name: DeviceName) -> torch.device:
    """The device of this name; auto is CUDA where there is one.

    Raises:
        UsageError: CUDA was asked for and is not there.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: use --device cpu, or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def check_backend(name: BackendName, device: torch.device) -> None:
    """Refuse a recurrence back end that cannot serve on this device.

    Raises:
        UsageError: with the reason.
    """
    try:
        chosen("recurrence", torch.empty(1, 1, 2, device=device), torch.empty(2, 2, device=device), backend=name)
    except ValueError as error:
        raise UsageError(f"--backend {name}: {error}; use --backend auto") from error


def train(
    config: RunConfig,
    store: Store,
    checkpoints: Checkpoints,
    device: torch.device,
    observer: Observer,
    should_stop: Callable[[], bool] = lambda: False,
    checkpoint_every: float = 30.0,
    backend: BackendName = "auto",
    on_divergence: OnDivergence = "stop",
    tags: Sequence[str] = (),
) -> Run:
    """Carry out a run and return its record; a run that is finished or diverged already is only looked up.

    Args:
        should_stop: asked after every iteration; when true a checkpoint is written and Interrupted raised.
        checkpoint_every: seconds between checkpoints; more where they would take over a hundredth of the time.
        backend: which kernels run the recurrence.
        on_divergence: whether a run that diverges ends, or goes on as long as its weights are finite.
        tags: names that the run gets beside those it has, finished or not; they change nothing of it.

    Raises:
        RunLockedError: another process is at this run.
        UsageError: the run cannot be started (the data is not there, ...).
        StorageError: the disk is full, or something cannot be written; or the database server is lost.
        OutOfMemory: on the accelerator; the run is recorded as failed.
        Interrupted: `should_stop` said so.
    """
    store.tag([config.spec.key], tags)
    if done := _result(store, config, checkpoints, on_divergence):
        return done
    with store.waiting(should_stop), lock(store, checkpoints), use_backend(backend):
        if done := _result(store, config, checkpoints, on_divergence):  # who held the lock before may have ended it
            return done
        forget_used()
        trainer = Trainer(
            config, store, checkpoints, device, observer, should_stop, checkpoint_every, on_divergence, tags
        )
        memory = None
        try:
            trainer.run_to_end()
        except Interrupted:
            trainer.close(Status.INTERRUPTED)
            raise
        except RunLockedError:  # the run is another's now
            raise
        except torch.OutOfMemoryError as error:
            memory = str(error).partition("\n")[0]
        except BaseException as error:
            status = Status.INTERRUPTED if isinstance(error, (KeyboardInterrupt, StorageError)) else Status.FAILED
            with suppress(StorageError):  # where nothing can be written, this cannot either
                trainer.close(status, f"{type(error).__name__}: {error}".splitlines()[0])
            raise
        if memory is not None:  # outside of its except clause, where the error would hold the tensors
            trainer.close(Status.FAILED, memory)
            message = explain_memory(trainer, memory)
            trainer.close(Status.FAILED, message)
            raise OutOfMemory(message)
        if not trainer.could_go_on:
            checkpoints.clear()
        finished = store.find(config.spec.key)
    assert finished is not None
    return finished


def _result(store: Store, config: RunConfig, checkpoints: Checkpoints, on_divergence: OnDivergence) -> Run | None:
    """The run's record, if it has come to its end."""
    run = store.find(config.spec.key)
    return run if run is not None and is_settled(run, checkpoints, on_divergence) else None


def is_settled(run: Run, checkpoints: Checkpoints, on_divergence: OnDivergence) -> bool:
    """Whether asking for this run again trains nothing."""
    if run.status == Status.DIVERGED and on_divergence == "continue":
        return not checkpoints.exists()
    return Status(run.status).is_final
