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
from orthobench.system.cores import counts_cpu_time
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
    steps: int = 3,
) -> RunProfile:
    """Train a few steps and evaluate a batch, without storing anything.

    The first step, which may compile kernels, and the steps before a CUDA graph count only if there are no others.

    Args:
        steps: number of steps to time.

    Raises:
        UsageError: the run cannot start.
    """
    with use_backend(backend):
        trainer = build_trainer(config, device)
        trainer.use_graph(cuda_graph)
        untimed = 1 if trainer.graph is None else WARM_UP + 1
        count = min(steps + untimed, trainer.total_iterations)
        spent = [_seconds(trainer.advance, device) for _ in range(count)]
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
    """Return the seconds of an evaluation of a whole split, estimated from one batch."""
    trainer = evaluator.trainer
    size, stream = trainer.training.evaluation_batch_size, as_stream(trainer.task, split)
    batches = -(-len(split) // size) if stream is None else stream.pieces(size)
    return batches * _seconds(lambda: evaluator.measure(split, 1), trainer.device)


def _seconds(function: Callable[[], object], device: torch.device) -> float:
    """Return the seconds of a call, including its queued CUDA work.

    As for stored runs, CPU time counts where it says how long the call takes (`counts_cpu_time`).
    """
    clock = time.process_time if counts_cpu_time(device.type, torch.get_num_threads()) else time.perf_counter
    start = clock()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - start
