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

NEAR = math.log(2)
"""The largest distance of an earlier run that is used: a total factor of two in the sizes."""

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

    `data` names the data set, as `data_set` does. `weights` is the size of the model's weights in bytes.
    """

    settings: dict[str, Any]
    data: dict[str, Any]
    seconds_per_iteration: float
    iterations_per_epoch: int
    memory: int | None
    name: str
    weights: int

    def seconds(self, spec: Mapping[str, Any]) -> float:
        """Estimate the seconds of a run with other settings, by its canonical form."""
        settings = merged_settings(spec)
        return _iterations(settings, self) * self.seconds_per_iteration * longer(settings, self.settings)


def experiences(runs: Sequence[Run], device: str, machine: str | None) -> list[Experience]:
    """Return the settings, time and memory of the runs on this kind of device, the newest first.

    Runs that several machines have trained are left out, because their seconds are those of none.

    Args:
        device: "cpu" or "cuda".
        machine: the processor or GPU to estimate for (`Environment.machine`); None for any.
    """
    known = []
    for run in sorted(runs, key=lambda run: (run.created_at, run.id), reverse=True):
        if run.device != device or not run.iterations or not run.seconds.get("train") or len(run.machines) > 1:
            continue
        if machine not in (None, run.environment.machine):
            continue
        known.append(
            Experience(
                merged_settings(run.spec),
                data_set(run.spec["task_settings"]),
                seconds_per_iteration(run),
                run.iterations_per_epoch,
                run.peak_memory,
                f"run {run.key[:8]}",
                FLOAT * run.parameter_count,
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


def nearest(spec: Mapping[str, Any], known: Sequence[Experience]) -> Experience | None:
    """Return the nearest run on the same data, the newest of equally near ones; None if all are too far away.

    Args:
        spec: the canonical form of the run to estimate.
        known: runs of the same task and model, the newest first.
    """
    settings, data = merged_settings(spec), data_set(spec["task_settings"])
    by_distance = [(time_distance(settings, other.settings), other) for other in known if other.data == data]
    away, near = min(by_distance, key=lambda pair: pair[0], default=(NEAR, None))
    return near if away < NEAR else None


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
    """Return the seconds of an iteration, including its share of evaluations, probes, logging and checkpoints."""
    return run.own_seconds / run.iterations


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
