"""Profile a run: estimate its time and memory from a few of its steps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass

import torch

from orthobench.options.arguments import BackendName, GraphMode
from orthobench.recurrence.backends import use_backend
from orthobench.spec.resolve import RunConfig
from orthobench.system import environment
from orthobench.task import Split, as_stream
from orthobench.training.build import build_trainer
from orthobench.training.graph import WARM_UP
from orthobench.training.loop import Evaluator


@dataclass(frozen=True)
class RunProfile:
    """An estimate of a run's time and memory.

    Attributes:
        seconds: time of all iterations and evaluations, without probes and final metrics.
        steps: number of steps that were timed.
        memory: peak memory of this process in bytes; None if the operating system does not report it.
        weights: size of the model's weights in bytes.
    """

    seconds: float
    steps: int
    total_iterations: int
    iterations_per_epoch: int
    memory: int | None
    weights: int = 0


class ProfileError(Exception):
    """A run could not be profiled; the message gives the reason."""


def profile_run(
    config: RunConfig,
    device: torch.device,
    backend: BackendName = "auto",
    cuda_graph: GraphMode = "auto",
    steps: int = 20,
    max_seconds: float = 10.0,
) -> RunProfile:
    """Train a few steps and evaluate a few batches, without storing anything.

    The first step, which may compile kernels, and the steps before a CUDA graph count only if there are no others.

    Args:
        steps: number of steps to time.
        max_seconds: seconds after which no further step starts.

    Raises:
        UsageError: the run cannot start.
    """
    with use_backend(backend):
        trainer = build_trainer(config, device)
        trainer.use_graph(cuda_graph)
        untimed = 1 if trainer.graph is None else WARM_UP + 1
        start = time.perf_counter()
        spent: list[float] = []
        limit = min(steps + untimed, trainer.total_iterations)
        while not spent or (len(spent) < limit and time.perf_counter() - start < max_seconds):
            spent.append(_seconds(trainer.advance, device))
        timed = spent[untimed:] or spent[-1:]
        evaluator = Evaluator(trainer)
        splits = (trainer.task.test if evaluator.tests else None, trainer.task.validation)
        evaluation = sum(_evaluation_seconds(evaluator, split) for split in splits if split is not None)
    seconds = trainer.total_iterations * sum(timed) / len(timed) + trainer.evaluations * evaluation
    return RunProfile(
        seconds,
        len(timed),
        trainer.total_iterations,
        trainer.iterations_per_epoch,
        environment.peak_memory(),
        sum(tensor.numel() * tensor.element_size() for tensor in trainer.model.state_dict().values()),
    )


def _evaluation_seconds(evaluator: Evaluator, split: Split) -> float:
    """Return the seconds of an evaluation of a whole split, estimated from one to three batches."""
    trainer = evaluator.trainer
    size, stream = trainer.training.evaluation_batch_size, as_stream(trainer.task, split)
    batches = -(-len(split) // size) if stream is None else stream.pieces(size)
    first = _seconds(lambda: evaluator.measure(split, 1), trainer.device)
    if first > 1:
        return batches * first
    sample = min(batches, 3)
    return batches * _seconds(lambda: evaluator.measure(split, sample), trainer.device) / sample


def _seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call, including its queued CUDA work.

    On a CPU, the smaller of CPU time and wall time counts, as for stored runs, because other programs only add time.
    """
    start, worked = time.perf_counter(), time.process_time()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        return time.perf_counter() - start
    return min(time.perf_counter() - start, time.process_time() - worked)
