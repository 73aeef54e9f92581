"""Estimate the time and memory of planned runs, from runs in the database or from a few training steps.

The estimate of an interrupted run follows from its own iterations. For other runs, it follows from the nearest earlier
runs of the same task and model on the same hardware: their seconds per iteration are multiplied by the number of
iterations of the new run. Among the newest five of them, the fastest counts, because a busy machine only adds time and
newer kernels are seldom slower. On a cluster, any hardware of the same kind of device is good enough.

The distance of two runs is measured by the ratios of their sizes. Runs of different data sets are not compared, because
the number of iterations in an epoch follows from the data. Without an earlier run within a factor of two, a few steps
are profiled in another process, and the result also serves the remaining runs of the plan. Without a profile, runs on
other hardware of the same kind are used, and the estimate says so. The time of an iteration is assumed to be
proportional to the sequence length.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import torch

from orthobench import environment
from orthobench.arguments import KeepWeights
from orthobench.errors import OrthobenchError
from orthobench.planning.plan import PlannedRun
from orthobench.settings import merged_settings
from orthobench.spec import RunConfig
from orthobench.store import Run, Store
from orthobench.store.result import CPU_SECONDS
from orthobench.training.profiling import ProfileError, RunProfile

NEAR = math.log(2)
"""The largest distance of an earlier run that is used: a total factor of two in the sizes."""

COMPARABLE = 5
"""Number of the newest runs among which the fastest is chosen."""
EQUALLY_NEAR = 0.05
"""The difference of distances up to which runs count as equally near."""

ITERATIONS = {"epochs", "max_iterations", "train_size", "solved_at"}
"""Settings that change the number of iterations, not the time of one."""
RATES = {"warmup", "schedule", "final_rate", "final_share", "weight_decay", "decay_exempt"}
"""Settings of the learning rate schedule and of weight decay, which change neither."""

FLOAT = 4
"""Size of a float32 number in bytes."""
COPIES: dict[KeepWeights, int] = {"none": 0, "best": 1, "last": 5, "both": 6}
"""The approximate number of weight copies that a run keeps; a training state has last and best ones and averages."""


@dataclass(frozen=True)
class Estimate:
    """The remaining seconds of a run, the peak memory of its process in bytes, and the source of the estimate.

    None means unknown, and `source` then gives the reason. `seconds` follows from the fastest of several earlier runs,
    and `slowest` from the slowest of them; it is None if they do not differ. `weights` is the size in bytes of the
    files that the run keeps.
    """

    seconds: float | None
    memory: int | None
    source: str
    weights: int = 0
    slowest: float | None = None


@dataclass(frozen=True)
class Experience:
    """The settings, time and memory of an earlier run or of a profile; `name` says which.

    `data` names the data set, as `data_set` does. `weights` is the size of the model's weights in bytes. `hardware`
    names the hardware if it differs from the hardware of the estimate.
    """

    settings: dict[str, Any]
    data: dict[str, str | None]
    seconds_per_iteration: float
    iterations_per_epoch: int
    memory: int | None
    name: str
    weights: int
    hardware: str | None = None

    def time(self, settings: dict[str, Any]) -> float:
        """Estimate the seconds of an iteration with other settings."""
        return self.seconds_per_iteration * _longer(settings, self.settings)


class Estimator:
    """An estimator of runs on one device, from the runs of a database and, if `profile` is set, from profiles.

    Args:
        keep_weights: which weights the runs keep.
        is_on_cluster: whether the runs train on other machines, so that earlier runs on any hardware of this kind of
            device count.
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
        kind = "cpu" if self.device == "cpu" else "accelerator"
        self.hardware_name: str | None = None if is_on_cluster else environment.describe(device)[kind]
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
        group = nearest(settings, data_set(planned.config.spec.task_settings), known)
        if (not group or group[0].hardware is not None) and self.profile is not None:
            variant = planned.config.spec.variant
            if failure := self.failures.get(variant):
                return failure
            try:
                group = [_experience(planned.config, self.profile(planned))]
            except (OrthobenchError, ProfileError) as error:
                failure = self.failures[variant] = Estimate(None, None, str(error))
                return failure
            known.extend(group)
        if not group:
            return Estimate(None, None, "no run like it yet")
        near = group[0]
        (seconds, slowest), fastest = _times(settings, group)
        memory = None if near.memory is None else round(near.memory * max(1.0, _longer(settings, near.settings)))
        wider = (settings["hidden_size"] / near.settings["hidden_size"]) ** 2
        source = fastest.name if len(group) == 1 else f"{fastest.name}, the fastest of {len(group)}"
        if fastest.hardware is not None:
            source += f", ~ on {fastest.hardware}"
        return Estimate(
            seconds,
            memory,
            source + _or_solved(planned.config),
            round(self.copies * near.weights * wider),
            slowest if slowest > seconds else None,
        )

    def _known(self, config: RunConfig) -> list[Experience]:
        """Return the earlier runs of this task and model, the newest first."""
        pair = config.spec.task, config.spec.model
        if pair not in self.known:
            runs = self.store.runs(task=pair[0], model=pair[1]) if self.store else []
            self.known[pair] = experiences(runs, self.device, self.hardware_name)
        return self.known[pair]

    def _is_comparable(self, run: Run) -> bool:
        return any(other.hardware is None for other in experiences([run], self.device, self.hardware_name))


def experiences(runs: Sequence[Run], device: str, hardware_name: str | None) -> list[Experience]:
    """Return the settings, time and memory of the runs on this kind of device, the newest first.

    Args:
        device: "cpu" or "cuda".
        hardware_name: the processor or GPU to estimate for; None for any.
    """
    kind = "cpu" if device == "cpu" else "accelerator"
    known = []
    for run in sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True):
        facts = run.environment.facts
        if run.device != device or not run.iterations or not run.seconds.get("train"):
            continue
        is_other = hardware_name is not None and facts.get(kind) != hardware_name
        known.append(
            Experience(
                merged_settings(run.spec),
                data_set(run.spec["task_settings"]),
                _seconds_per_iteration(run),
                run.iterations_per_epoch,
                run.peak_memory,
                f"run {run.key[:8]}",
                FLOAT * run.parameter_count,
                str(facts.get(kind)) if is_other else None,
            )
        )
    return known


def data_set(task_settings: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the settings that say which data a task reads; empty if its `train_size` says how much it reads.

    These are its words, such as the name of a data set. The checksum of a file counts, and not its path.
    """
    if "train_size" in task_settings:
        return {}
    words = {name: value for name, value in task_settings.items() if value is None or isinstance(value, str)}
    return {name: value for name, value in words.items() if f"{name}_md5" not in task_settings}


def nearest(settings: dict[str, Any], data: dict[str, str | None], known: Sequence[Experience]) -> list[Experience]:
    """Return the newest of the nearest runs, the newest first; an empty list if all are too far away.

    Runs on other hardware count only if there is none on this hardware.

    Args:
        data: the data set, as `data_set` returns it; only runs on the same one count.
        known: runs of the same task and model, the newest first.
    """
    by_distance = [(distance(settings, other.settings), other) for other in known if other.data == data]
    near = [(away, other) for away, other in by_distance if away < NEAR]
    near = [entry for entry in near if entry[1].hardware is None] or near
    limit = min((away for away, _ in near), default=0.0) + EQUALLY_NEAR
    return [other for away, other in near if away <= limit][:COMPARABLE]


def estimated_seconds(
    spec: Mapping[str, Any], known: Sequence[Experience]
) -> tuple[tuple[float, float], Experience] | None:
    """Estimate a run's seconds from the fastest and the slowest of the nearest runs; also return the fastest run.

    The result is None if there is no such run.

    Args:
        spec: the canonical form of the run.
        known: runs of the same task and model, the newest first.
    """
    settings = merged_settings(spec)
    group = nearest(settings, data_set(spec["task_settings"]), known)
    return _times(settings, group) if group else None


def _times(settings: dict[str, Any], group: Sequence[Experience]) -> tuple[tuple[float, float], Experience]:
    times = [(_iterations(settings, other) * other.time(settings), other) for other in group]
    seconds, fastest = min(times, key=lambda entry: entry[0])
    return (seconds, max(time for time, _ in times)), fastest


def distance(settings: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of two runs of the same model, which measures how much the time of an iteration may differ.

    It is a sum over settings: |ln(a / b)| for whole numbers, 0.01 for other values that differ, and 1 for a missing
    value.
    """
    return sum(
        _distance(settings.get(name), other.get(name)) for name in (settings.keys() | other.keys()) - ITERATIONS - RATES
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
    """Return the seconds of an iteration, including its share of evaluations, probes, logging and checkpoints.

    On a CPU, the smaller of CPU time and wall time counts, because other programs only increase the wall time.
    """
    seconds = run.wall_seconds
    if run.device == "cpu":
        seconds = min(seconds, run.seconds.get(CPU_SECONDS) or seconds)
    return seconds / run.iterations


def _experience(config: RunConfig, profile: RunProfile) -> Experience:
    return Experience(
        config.spec.settings,
        data_set(config.spec.task_settings),
        profile.seconds / profile.total_iterations,
        profile.iterations_per_epoch,
        profile.memory,
        f"{profile.steps} steps tried" if profile.steps > 1 else "one step timed",
        profile.weights,
    )


def _or_solved(config: RunConfig) -> str:
    """Return a remark for the estimate of a run that may stop before its last iteration; "" for other runs."""
    return "" if config.training.solved_at is None else "; less if solved earlier"


def _longer(settings: dict[str, Any], near: dict[str, Any]) -> float:
    """Return the ratio of the sequence lengths; 1 if a length is missing."""
    own, other = settings.get("sequence_length"), near.get("sequence_length")
    return own / other if _is_size(own) and _is_size(other) else 1.0


def _iterations(settings: dict[str, Any], near: Experience) -> int:
    """Compute the number of iterations of a run, from the training set size of the near run."""
    examples: float = near.iterations_per_epoch * near.settings["batch_size"]
    if "train_size" in settings and "train_size" in near.settings:
        examples = examples * settings["train_size"] / near.settings["train_size"]
    total: int = settings["epochs"] * max(1, round(examples / settings["batch_size"]))
    return min(total, settings["max_iterations"] or total)
