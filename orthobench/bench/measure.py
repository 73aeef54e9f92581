"""Interleaved timing on a shared machine.

`torch.utils.benchmark` times one statement after another, and each at least three times. Here the machine's speed may
change between the statements, and a step may take minutes.
"""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

Clock = Callable[[], float]
"""Returns the seconds since an arbitrary start."""
WALL: Clock = time.perf_counter
CPU: Clock = time.process_time
"""The CPU time of this process, to which other processes add nothing."""
SHORTEST = 0.25
"""Minimum seconds per sample, among which short pauses do not count."""
PATIENCE = 20.0
"""Maximum total seconds of the samples of one implementation."""


@dataclass(frozen=True)
class TimeSummary:
    """Median seconds of a step over n samples, and their range as a share of it."""

    seconds: float
    n: int
    spread: float


def interleave(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Clock = WALL,
    shortest: float = SHORTEST,
    patience: float = PATIENCE,
    warm: bool = False,
) -> dict[str, list[float]]:
    """Time all steps in every round, one after another, and return the seconds of each in each round.

    With `warm` an untimed step precedes each sample. It reallocates the memory that was released while the others ran,
    which in training only the first step does.

    The first step of each implementation pays for fresh memory and compilation. The second determines the number of
    steps per sample, and the number of samples that fit into `patience`. If it takes longer than that, it is the only
    sample.
    """
    samples: dict[str, list[float]] = {}
    repeats, counts = {}, {}
    for name, step in steps.items():
        trial = _seconds(step, 1, clock)
        if trial <= patience:
            trial = _seconds(step, 1, clock)
        repeats[name] = max(1, math.ceil(shortest / max(trial, 1e-9)))
        counts[name] = min(rounds, int(patience / max(trial, shortest, 1e-9)))
        samples[name] = [] if counts[name] else [trial]
    for done in range(rounds):
        for name, step in steps.items():
            if done < counts[name]:
                if warm:
                    step()
                samples[name].append(_seconds(step, repeats[name], clock))
    return samples


def summarise(samples: Sequence[float]) -> TimeSummary:
    """Summarise the seconds of a step."""
    median = statistics.median(samples)
    return TimeSummary(median, len(samples), (max(samples) - min(samples)) / median if median else 0.0)


def ratio(samples: Sequence[float], others: Sequence[float]) -> float:
    """Return the median over rounds of the samples' seconds divided by the others' seconds in the same round.

    Dividing within rounds matters because the machine's speed may change between them.
    """
    # Not strict, because a slow implementation has fewer samples.
    return statistics.median(a / b for a, b in zip(samples, others, strict=False))


def _seconds(step: Callable[[], object], repeats: int, clock: Clock) -> float:
    start = clock()
    for _ in range(repeats):
        step()
    return (clock() - start) / repeats
