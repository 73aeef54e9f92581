"""How long a run would take, from a few of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import torch

from orthobench import environment
from orthobench.recurrence.dispatch import use_backend
from orthobench.spec import RunConfig
from orthobench.store import open_store
from orthobench.task import Split
from orthobench.training.batches import as_stream
from orthobench.training.checkpoint import CheckpointFolder
from orthobench.training.events import Unwatched
from orthobench.training.lifecycle import BackendName
from orthobench.training.trainer import Trainer


@dataclass(frozen=True)
class RunProfile:
    """How long a run would take: `seconds` for all its iterations and tests, judged by so many `steps`.

    Probes and the metrics that are measured once at the end are not in it. memory: the most this process held, bytes.
    """

    seconds: float
    steps: int
    total_iterations: int
    iterations_per_epoch: int
    memory: int | None


def profile_run(
    config: RunConfig, device: torch.device, backend: BackendName = "auto", steps: int = 20, at_most: float = 10.0
) -> RunProfile:
    """Train a few steps and test a few batches, as the run would; nothing of it is kept.

    The first step, which may compile something, is not counted where there is a second.

    Args:
        steps: how many to count.
        at_most: seconds after which no further step is begun.

    Raises:
        UsageError: the run could not be started.
    """
    with TemporaryDirectory() as folder, open_store("sqlite://", create=True) as store, use_backend(backend):
        checkpoints = CheckpointFolder(Path(folder), config.spec.key)
        trainer = Trainer(config, store, checkpoints, device, Unwatched(), lambda: False, 0.0, "stop", ())
        return _pace(trainer, steps, at_most)


def _pace(trainer: Trainer, steps: int, at_most: float) -> RunProfile:
    """Go a few steps and test a few batches against the clock."""
    begun = time.perf_counter()
    spent: list[float] = []
    while not spent or (len(spent) <= min(steps, trainer.total - 1) and time.perf_counter() - begun < at_most):
        spent.append(_clocked(trainer, trainer.advance))
    counted = spent[1:] or spent
    splits = [split for split in (trainer.task.test, trainer.task.validation) if split is not None]
    test = sum(_test_pace(trainer, split) for split in splits)
    tests = 1 + trainer.total // trainer.test_every
    seconds = trainer.total * sum(counted) / len(counted) + tests * test
    return RunProfile(seconds, len(counted), trainer.total, trainer.per_epoch, environment.peak_memory())


def _test_pace(trainer: Trainer, split: Split) -> float:
    """The seconds that a test on a whole split takes, by its first batch, or by three where that is soon done."""
    size, stream = trainer.training.evaluation_batch_size, as_stream(trainer.task, split)
    batches = -(-len(split) // size) if stream is None else stream.pieces(size)
    once = _clocked(trainer, lambda: trainer.test(split, 1))
    few = min(batches, 3)
    return batches * (once if once > 1 else _clocked(trainer, lambda: trainer.test(split, few)) / few)


def _clocked(trainer: Trainer, act: Callable[[], object]) -> float:
    """The seconds that something takes, queued CUDA work included."""
    begun = time.perf_counter()
    act()
    if trainer.device.type == "cuda":
        torch.cuda.synchronize(trainer.device)
    return time.perf_counter() - begun
