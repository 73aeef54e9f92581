"""The lifecycle of a run: lock, resume or start, train, record the end, diagnose a lack of memory.

A run resumes from the newest checkpoint that belongs to it, to its rows and to the kernels of this machine.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any

import torch

from orthobench.arguments import BackendName, DeviceName
from orthobench.errors import OrthobenchError, RunLockedError, StorageError, UsageError, lacks_memory, one_line
from orthobench.isolation import isolated, seed_generators
from orthobench.options import RunOptions
from orthobench.recurrence import BackendError, recurrence
from orthobench.recurrence.runtime import forget_used, use_backend
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.task import derive_seed
from orthobench.training.checkpoint import Checkpoints, lock, places, settled_run
from orthobench.training.events import EventSink
from orthobench.training.loop import CheckpointSchedule, Interrupted, TrainingLoop
from orthobench.training.recording import DatabaseSink, WeightsKeeper
from orthobench.training.trainer import Checkpoint, Trainer, kernels


def pick_device(name: DeviceName) -> torch.device:
    """Return the device with this name; "auto" is CUDA if there is a CUDA device, or else the CPU.

    Raises:
        UsageError: there is no CUDA device.
    """
    if name == "cuda" and not torch.cuda.is_available():
        raise UsageError("there is no CUDA device here: use `device='cpu'`, or auto")
    return torch.device("cuda" if name != "cpu" and torch.cuda.is_available() else "cpu")


def backend_problem(name: str, device: torch.device) -> str | None:
    """Return why a back end of the recurrence cannot run on this device, or None if it can.

    The check does not open a CUDA context, which would take memory in addition to the contexts of the worker processes.
    """
    if name == "auto":
        return None
    if name == "cuda" and device.type != name:
        return "the run is on the CPU"
    try:
        with use_backend(name):
            recurrence.chosen_backend(_Described((1, 1, 2), device), _Described((2, 2), device))
    except (BackendError, ValueError) as error:
        return str(error)
    return None


class _Described(torch.Tensor):
    """A float32 tensor that has a shape and a device but no memory."""

    @staticmethod
    def __new__(cls, shape: tuple[int, ...], device: torch.device) -> _Described:
        described: _Described = torch.Tensor._make_wrapper_subclass(cls, shape, dtype=torch.float32, device=device)
        return described

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        raise NotImplementedError(f"{func}: this tensor has no numbers")


def check_backend(name: BackendName, device: torch.device) -> None:
    """Refuse a back end of the recurrence that cannot run on this device.

    Raises:
        UsageError: the back end cannot run; the message gives the reason.
    """
    if problem := backend_problem(name, device):
        raise UsageError(f"`backend={name!r}`: {problem}; use `backend='auto'`")


def build_trainer(config: RunConfig, device: torch.device) -> Trainer:
    """Seed the random generators for a run, and return the run's trainer with its data; call it within `isolated`.

    Raises:
        UsageError: the data is missing, the settings do not fit it, data and model exceed the memory, or a plugin reads
            a file that the key does not cover.
    """
    seed_generators(derive_seed(config.spec.seed, "global"))
    try:
        with config.reads():
            task = config.task_class(config.task_settings, config.spec.seed, device)
            return Trainer(config, task, device)
    except (MemoryError, RuntimeError) as error:
        if not lacks_memory(error):
            raise
        pair = f"{config.spec.task} and {config.spec.model}"
        raise UsageError(f"out of memory while building {pair}: choose smaller sizes ({one_line(error)})") from error


CPU = torch.device("cpu")


def check_fit(configs: Iterable[RunConfig], device: torch.device = CPU) -> Trainer | None:
    """Check that at least one of the runs can start; a single run that cannot start does not end a sweep.

    The check builds the data and the model and trains nothing; call it within `isolated`. Runs that differ only in the
    seed count as one. If a plugin raises any other error, the run counts as able to start, and the database records the
    failure.

    Returns:
        The trainer of the first run that can start, or None if a plugin raised an error.

    Raises:
        UsageError: none of the runs can start; the message is the first run's.
    """
    refusal: OrthobenchError | None = None
    checked: set[str] = set()
    for config in configs:
        if config.spec.variant in checked:
            continue
        checked.add(config.spec.variant)
        try:
            return build_trainer(config, device)
        except OrthobenchError as error:
            refusal = refusal or error
        except ValueError as error:
            message = str(error).splitlines()[0] if str(error) else "an invalid value"
            refusal = refusal or UsageError(f"{config.spec.task} and {config.spec.model} do not fit: {message}")
        except Exception:  # a plugin may raise any error; the run raises it again and stores it
            return None
    if refusal is not None:
        raise refusal
    return None


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
    with isolated(), store.waiting(should_stop), lock(store, checkpoints):
        if settled := settled_run(store, checkpoints, options.on_divergence):
            if settled.status == Status.FINISHED:  # its process may have died before it removed them
                checkpoints.clear()
            return settled
        folder.remove_parts(key)
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
            with use_backend(resumed_backend(options.backend, checkpoint, device, key)), config.reads():
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
    before, now = checkpoint.kernels, kernels()
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
