"""What earlier runs say about the time of a run: which of them are near, and how long each iteration took.

The distance of two runs is measured by the ratios of their sizes. Runs of different data sets are not compared, because
the number of iterations in an epoch follows from the data. The time of an iteration is assumed to be proportional to
the sequence length.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

from orthobench.settings import merged_settings
from orthobench.store import Run
from orthobench.store.result import CPU_SECONDS

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
DECISIONS = {"judged_by", "validation_size"}
"""Settings of the data that judge a run, of which an evaluation reads about as many as of the tests."""
FLOAT = 4
"""Size of a float32 number in bytes."""
LENGTHS = ("sequence_length", "longest")
"""Settings that say how long the sequences of a task are, to which the time of an iteration is proportional."""


@dataclass(frozen=True)
class Experience:
    """The settings, time and memory of an earlier run or of a profile; `name` says which.

    `data` names the data set, as `data_set` does. `weights` is the size of the model's weights in bytes. `hardware`
    names the hardware if it differs from the hardware of the estimate.
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    seconds_per_iteration: float
    iterations_per_epoch: int
    memory: int | None
    name: str
    weights: int
    hardware: str | None = None

    def time(self, settings: dict[str, Any]) -> float:
        """Estimate the seconds of an iteration with other settings."""
        return self.seconds_per_iteration * longer(settings, self.settings)


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
                seconds_per_iteration(run),
                run.iterations_per_epoch,
                run.peak_memory,
                f"run {run.key[:8]}",
                FLOAT * run.parameter_count,
                str(facts.get(kind)) if is_other else None,
            )
        )
    return known


def data_set(task_settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that say which data a task reads; empty if its `train_size` says how much it reads.

    These are its words, such as the name of a data set, and its numbers and lists, such as a share of the data or the
    length of the pieces of a text. The checksum of a file counts, and not its path. Flags are taken to leave the number
    of examples as it is.
    """
    if _is_size(task_settings.get("train_size")):
        return {}
    chosen = {name: value for name, value in task_settings.items() if not isinstance(value, bool)}
    return {name: value for name, value in chosen.items() if f"{name}_md5" not in task_settings}


def nearest(settings: dict[str, Any], data: dict[str, Any], known: Sequence[Experience]) -> list[Experience]:
    """Return the newest of the nearest runs, the newest first; an empty list if all are too far away.

    Runs on other hardware count only if there is none on this hardware.

    Args:
        data: the data set, as `data_set` returns it; only runs on the same one count.
        known: runs of the same task and model, the newest first.
    """
    by_distance = [(time_distance(settings, other.settings), other) for other in known if other.data == data]
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
    return times(settings, group) if group else None


def rough_seconds(spec: Mapping[str, Any], known: Sequence[Experience], device: str) -> float | None:
    """Estimate a run's seconds roughly, from a run on the same data whatever its size or model; None without one.

    On a CPU the time of an iteration is taken as proportional to the batch and to the square of the hidden size. On a
    GPU it hardly depends on them, because a recurrence is a sequence of short steps.

    Args:
        spec: the canonical form of the run.
        known: runs of the same task, best of the same model.
    """
    settings, data = merged_settings(spec), data_set(spec["task_settings"])

    def work(own: Mapping[str, Any]) -> float:
        return float(own["batch_size"] * own["hidden_size"] ** 2)

    same = [other for other in known if other.data == data and "hidden_size" in other.settings]
    if not same or "hidden_size" not in settings:
        return None
    near = min(same, key=lambda other: abs(math.log(work(settings) / work(other.settings))))
    scale = work(settings) / work(near.settings) if device == "cpu" else 1.0
    return _iterations(settings, near) * near.time(settings) * scale


def times(settings: dict[str, Any], group: Sequence[Experience]) -> tuple[tuple[float, float], Experience]:
    each = [(_iterations(settings, other) * other.time(settings), other) for other in group]
    seconds, fastest = min(each, key=lambda entry: entry[0])
    return (seconds, max(time for time, _ in each)), fastest


def time_distance(settings: dict[str, Any], other: dict[str, Any]) -> float:
    """Return the distance of two runs of the same model, which measures how much the time of an iteration may differ.

    It is a sum over settings: |ln(a / b)| for whole numbers, 0.01 for other values that differ, and 1 for a missing
    value.
    """
    return sum(
        _distance(settings.get(name), other.get(name))
        for name in (settings.keys() | other.keys()) - ITERATIONS - RATES - DECISIONS
    )


def _distance(a: Any, b: Any) -> float:
    if a == b:
        return 0.0
    if _is_size(a) and _is_size(b):
        return abs(math.log(a / b))
    return 0.01 if isinstance(a, (str, float, bool)) and isinstance(b, (str, float, bool)) else 1.0


def _is_size(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def seconds_per_iteration(run: Run) -> float:
    """Return the seconds of an iteration, including its share of evaluations, probes, logging and checkpoints.

    On a CPU, the smaller of CPU time and wall time counts, because other programs only increase the wall time.
    """
    seconds = run.wall_seconds
    if run.device == "cpu":
        seconds = min(seconds, run.seconds.get(CPU_SECONDS) or seconds)
    return seconds / run.iterations


def longer(settings: dict[str, Any], near: dict[str, Any]) -> float:
    """Return the ratio of the sequence lengths; 1 if a length is missing."""
    ratio = 1.0
    for name in LENGTHS:
        own, other = settings.get(name), near.get(name)
        if _is_size(own) and _is_size(other):
            ratio *= own / other
    return ratio


def _iterations(settings: dict[str, Any], near: Experience) -> int:
    """Compute the number of iterations of a run, from the training set size of the near run."""
    examples: float = near.iterations_per_epoch * near.settings["batch_size"]
    own, other = settings.get("train_size"), near.settings.get("train_size")
    if _is_size(own) and _is_size(other):
        examples = examples * own / other
    total: int = settings["epochs"] * max(1, round(examples / settings["batch_size"]))
    return min(total, settings["max_iterations"] or total)
