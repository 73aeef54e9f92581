"""Estimate the time and memory of a plan's runs: from the database's runs, or from a few steps.

A run that was interrupted is judged by its own iterations. Another run is judged by the nearest earlier run of the same
task and model on the same hardware: the seconds of an iteration there, times the iterations here. On a cluster, the
same kind of device is enough. Distance is measured in the ratios of sizes. Without an earlier run within a factor of
two, a few steps are profiled in another process. Their result serves the rest of the plan. The time of an iteration is
taken as proportional to the sequence length.
"""

from __future__ import annotations

import math
import multiprocessing
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, TypeGuard, cast

import torch

from orthobench import environment
from orthobench.data import use_data_folder
from orthobench.errors import OrthobenchError, UsageError, one_line
from orthobench.execution.job import Job
from orthobench.planning.plan import PlannedRun
from orthobench.settings import merged_settings
from orthobench.spec import RunConfig
from orthobench.store import Run, Store
from orthobench.training.devices import pick_device
from orthobench.training.keep import KeepWeights
from orthobench.training.profiling import RunProfile, profile_run

NEAR = math.log(2)
"""The largest distance of an earlier run: sizes that are twice as large in total."""

LENGTH = {"epochs", "max_iterations", "train_size", "solved_at"}
"""Settings that change the number of iterations, not the time of one."""
RATES = {"warmup", "schedule", "final_rate", "final_share", "weight_decay", "decay_exempt"}
"""Settings of the course of the learning rates and of weight decay, which change neither."""

FLOAT = 4
"""Bytes of a float32 number."""
COPIES: dict[KeepWeights, int] = {"none": 0, "best": 1, "last": 5, "both": 6}
"""About how many copies of the weights a run keeps; a training state has the last ones, the best ones and averages."""


@dataclass(frozen=True)
class Estimate:
    """The remaining seconds of a run, the peak memory of its process in bytes, and the source of the estimate.

    None stands for unknown; `source` then has the reason. `weights` is the size in bytes of the files that the run
    keeps.
    """

    seconds: float | None
    memory: int | None
    source: str
    weights: int = 0


@dataclass(frozen=True)
class Experience:
    """The settings, time and memory of an earlier run or of a profile; `name` says which.

    `weights` is the size of the model's weights in bytes.
    """

    settings: dict[str, Any]
    seconds_per_iteration: float
    iterations_per_epoch: int
    memory: int | None
    name: str
    weights: int


class Estimator:
    """Estimates runs on one device from a database's runs and, if `profile` is set, from profiles.

    Args:
        keep_weights: which weights the runs keep.
        is_on_cluster: the runs train on other machines: earlier runs on any hardware of this kind of device count.
    """

    def __init__(
        self,
        store: Store | None,
        device: torch.device,
        profile: Callable[[PlannedRun], RunProfile] | None = None,
        keep_weights: KeepWeights = "none",
        is_on_cluster: bool = False,
    ) -> None:
        self.copies = COPIES[keep_weights]
        self.store, self.device, self.profile = store, device.type, profile
        self.hardware = "cpu" if self.device == "cpu" else "accelerator"
        self.hardware_name = None if is_on_cluster else environment.describe(device)[self.hardware]
        self.known: dict[tuple[str, str], list[Experience]] = {}
        self.failures: dict[str, Estimate] = {}  # by variant

    def of(self, planned: PlannedRun) -> Estimate:
        """Estimate a pending run."""
        run = planned.existing_run
        if run is not None and self._is_comparable(run):
            left = run.total_iterations - run.iterations
            source = f"its own {run.iterations} of {run.total_iterations} iterations"
            weights = self.copies * FLOAT * run.parameter_count
            return Estimate(
                left * _seconds_per_iteration(run), run.peak_memory, source + _or_solved(planned.config), weights
            )
        settings, known = planned.config.spec.settings, self._known(planned.config)
        near = min(known, key=lambda other: distance(settings, other.settings), default=None)
        if near is None or distance(settings, near.settings) >= NEAR:
            if self.profile is None:
                return Estimate(None, None, "no run like it yet")
            variant = planned.config.spec.variant
            if failure := self.failures.get(variant):
                return failure
            try:
                near = _experience(planned.config, self.profile(planned))
            except (OrthobenchError, ProfileError) as error:
                failure = self.failures[variant] = Estimate(None, None, str(error))
                return failure
            known.append(near)
        longer = _longer(settings, near.settings)
        seconds = _iterations(settings, near) * near.seconds_per_iteration * longer
        memory = None if near.memory is None else round(near.memory * max(1.0, longer))
        wider = (settings["hidden_size"] / near.settings["hidden_size"]) ** 2
        return Estimate(
            seconds, memory, near.name + _or_solved(planned.config), round(self.copies * near.weights * wider)
        )

    def _known(self, config: RunConfig) -> list[Experience]:
        """Return the earlier runs of this task and model, the newest first."""
        pair = config.spec.task, config.spec.model
        if pair not in self.known:
            runs = self.store.runs(task=pair[0], model=pair[1]) if self.store else []
            self.known[pair] = [
                Experience(
                    merged_settings(run.spec),
                    _seconds_per_iteration(run),
                    run.iterations_per_epoch,
                    run.peak_memory,
                    f"run {run.key[:8]}",
                    FLOAT * run.parameter_count,
                )
                for run in reversed(runs)
                if self._is_comparable(run)
            ]
        return self.known[pair]

    def _is_comparable(self, run: Run) -> bool:
        """Return whether a run trained on such hardware and has iterations of its own time, not that of a group."""
        same_hardware = run.device == self.device and (
            self.hardware_name is None or run.environment.facts.get(self.hardware) == self.hardware_name
        )
        if "gpu_batch" in run.environment.facts:
            return False
        return same_hardware and run.iterations > 0 and run.seconds.get("train", 0.0) > 0


class ProfileError(Exception):
    """A run could not be profiled; the message has the reason."""


def profile_job(job: Job) -> RunProfile:
    """Profile a job in another process; its database and checkpoints are not used.

    Raises:
        UsageError: the run cannot start.
        ProfileError: the steps failed, or the process was killed.
    """
    spawn = multiprocessing.get_context("spawn")
    receiver, sender = spawn.Pipe(duplex=False)
    process = spawn.Process(target=_send_profile, args=(job, sender), daemon=True)
    with _interrupts_held():
        process.start()
    sender.close()
    try:
        message = receiver.recv()
    except EOFError:
        raise ProfileError("its first steps ended the process: out of memory?") from None
    finally:
        process.kill()
        process.join()
        receiver.close()
    if isinstance(message, Exception):
        raise message
    return cast(RunProfile, message)


@contextmanager
def _interrupts_held() -> Iterator[None]:
    """Hold Ctrl-C back inside the block. A process that starts there never receives it: its parent ends it."""
    if not hasattr(signal, "pthread_sigmask"):  # Windows
        yield
        return
    resource_tracker.ensure_running()  # starting it would release the signal
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _send_profile(job: Job, sender: Connection) -> None:
    """Send the profile of a job, or the error."""
    message: RunProfile | Exception
    try:
        if job.threads is not None:
            torch.set_num_threads(job.threads)
        with use_data_folder(None if job.data_folder is None else Path(job.data_folder)):
            config = job.resolve()
            message = profile_run(config, pick_device(job.device), job.backend, job.cuda_graph)
    except OrthobenchError as error:
        message = UsageError(str(error))
    except Exception as error:
        message = ProfileError(f"its first steps failed: {one_line(error)}")
    sender.send(message)


def distance(settings: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of two runs of the same model, a measure of the difference of their iterations' time.

    The sum of |ln(a / b)| over whole numbers, 0.01 for other values that differ, and 1 for a missing value.
    """
    return sum(
        _distance(settings.get(name), other.get(name)) for name in (settings.keys() | other.keys()) - LENGTH - RATES
    )


def _distance(a: Any, b: Any) -> float:
    if a == b:
        return 0.0
    if _is_size(a) and _is_size(b):
        return abs(math.log(a / b))
    return 0.01 if isinstance(a, (str, float, bool)) and isinstance(b, (str, float, bool)) else 1.0


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _seconds_per_iteration(run: Run) -> float:
    """Return the seconds of an iteration, with its share of evaluations, probes, logging and checkpoints."""
    return float(sum(run.seconds.values())) / run.iterations


def _experience(config: RunConfig, profile: RunProfile) -> Experience:
    return Experience(
        config.spec.settings,
        profile.seconds / profile.total_iterations,
        profile.iterations_per_epoch,
        profile.memory,
        f"{profile.steps} steps tried" if profile.steps > 1 else "one step tried",
        profile.weights,
    )


def _or_solved(config: RunConfig) -> str:
    """Return the remark on the estimate of a run that may stop before its last iteration; "" for other runs."""
    return "" if config.training.solved_at is None else "; less if solved earlier"


def _longer(settings: dict[str, Any], near: dict[str, Any]) -> float:
    """Return the ratio of the sequence lengths; 1 where a length is missing."""
    own, other = settings.get("sequence_length"), near.get("sequence_length")
    return own / other if _is_size(own) and _is_size(other) else 1.0


def _iterations(settings: dict[str, Any], near: Experience) -> int:
    """Return the number of iterations of a run, from the size of the near run's training set."""
    examples: float = near.iterations_per_epoch * near.settings["batch_size"]
    if "train_size" in settings and "train_size" in near.settings:
        examples = examples * settings["train_size"] / near.settings["train_size"]
    total: int = settings["epochs"] * max(1, round(examples / settings["batch_size"]))
    return min(total, settings["max_iterations"] or total)
