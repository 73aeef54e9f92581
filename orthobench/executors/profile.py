"""Profile a job: a few of its steps in another process, so that nothing of them stays in this one."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import cast

import torch

from orthobench.analysis.experience import Experience, data_set
from orthobench.errors import OrthobenchError, UsageError
from orthobench.executors.job import Job
from orthobench.executors.processes import CONTEXT, prepare_forks
from orthobench.isolation import isolated
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import RunOptions
from orthobench.recurrence.backends import use_backend
from orthobench.spec.resolve import RunConfig
from orthobench.system import environment
from orthobench.system.cores import counts_cpu_time
from orthobench.system.own_code import described
from orthobench.system.spawn import start
from orthobench.task import Split, as_stream
from orthobench.training.build import build_trainer
from orthobench.training.device import pick_device
from orthobench.training.evaluator import Evaluator
from orthobench.training.graph import WARM_UP
from orthobench.training.lifecycle import DEFAULTS

STEPS = 3
"""The number of steps that are timed."""


def profile_job(job: Job) -> Experience:
    """Profile a job in another process, without using its database and checkpoints.

    Raises:
        UsageError: the run cannot start, its steps failed, or the process was killed.
    """
    prepare_forks().join()
    receiver, sender = CONTEXT.Pipe(duplex=False)
    process = CONTEXT.Process(target=_send_profile, args=(job, sender), daemon=True)
    with sender:
        start(process)
    try:
        message = receiver.recv()
    except EOFError:
        raise UsageError("its first steps ended the process: out of memory?") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(message, str):
        raise UsageError(message)
    return cast(Experience, message)


def _send_profile(job: Job, sender: Connection) -> None:
    """Profile a job and send the profile, or the error in one line, to the parent."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent receives Ctrl-C as well, and ends this process
    message: Experience | str
    try:
        with isolated(job.threads), use_data_folder(job.options.data_folder):
            message = profile_run(job.resolve(), job.options)
    except OrthobenchError as error:
        message = str(error)
    except Exception as error:
        message = f"its first steps failed: {described(error)}"
    sender.send(message)


def profile_run(config: RunConfig, options: RunOptions = DEFAULTS) -> Experience:
    """Train a few steps and evaluate a batch, without storing anything.

    Probes and final metrics are left out. The first step, which may compile kernels, and the steps before a CUDA graph
    count only if there are no others.

    Raises:
        UsageError: the run cannot start.
    """
    device = pick_device(options.device)
    with use_backend(options.backend):
        trainer = build_trainer(config, device)
        trainer.use_graph(options.cuda_graph)
        untimed = 1 if trainer.graph is None else WARM_UP + 1
        count = min(STEPS + untimed, trainer.total_iterations)
        spent = [_seconds(trainer.advance, device) for _ in range(count)]
        timed = spent[untimed:] or spent[-1:]
        evaluator = Evaluator(trainer)
        splits = (trainer.task.test if evaluator.tests else None, trainer.task.validation)
        evaluation = sum(_evaluation_seconds(evaluator, split) for split in splits if split is not None)
    return Experience(
        config.spec.settings,
        data_set(config.spec.task_settings),
        sum(timed) / len(timed) + trainer.evaluations * evaluation / trainer.total_iterations,
        trainer.iterations_per_epoch,
        environment.peak_memory(),
        f"{len(timed)} steps tried" if len(timed) > 1 else "one step timed",
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
    before = clock()
    function()
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return clock() - before
