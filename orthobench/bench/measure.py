"""Interleaved timing on a shared machine."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import psutil

SHORTEST = 0.25
"""Minimum seconds per sample, because the system counts other processes' time in hundredths of a second."""
PATIENCE = 20.0
"""Maximum total seconds of the samples of one implementation."""
FOREIGN = 0.1
"""A sample is left out if other processes took more than this share of the machine."""
FEWEST = 3
"""No sample is left out if fewer samples than this would remain."""


class SystemClock:
    """The seconds since an arbitrary start."""

    cores = os.cpu_count() or 1
    now = staticmethod(time.perf_counter)

    def foreign(self) -> float:
        """Return the core-seconds of other processes since an arbitrary start."""
        times = psutil.cpu_times()._asdict()
        idle = ("idle", "iowait", "guest", "guest_nice")  # guest time is already part of user time
        busy: float = sum(spent for kind, spent in times.items() if kind not in idle)
        return busy - time.process_time()


class CpuClock(SystemClock):
    """The CPU time of this process, to which other processes add nothing."""

    now = staticmethod(time.process_time)

    def foreign(self) -> float:
        return 0.0


@dataclass(frozen=True)
class Sample:
    """Seconds a step took, and the share of the machine, 0 to 1, that other processes used meanwhile."""

    seconds: float
    foreign: float


@dataclass(frozen=True)
class TimeSummary:
    """Median seconds of a step over n samples, and their range as a share of it."""

    seconds: float
    n: int
    spread: float


def interleave(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: SystemClock,
    shortest: float = SHORTEST,
    patience: float = PATIENCE,
    warm: bool = False,
) -> dict[str, list[Sample]]:
    """Time all steps in every round, one after another.

    With `warm` an untimed step precedes each sample. It reallocates the memory that was released while the others ran,
    which in training only the first step does.

    The first step of each implementation pays for fresh memory and compilation. The second determines the number of
    steps per sample, and the number of samples that fit into `patience`. If it takes longer than that, it is the only
    sample.
    """
    samples: dict[str, list[Sample]] = {}
    repeats, counts = {}, {}
    for name, step in steps.items():
        trial = _sample(step, 1, clock)
        if trial.seconds <= patience:
            trial = _sample(step, 1, clock)
        repeats[name] = max(1, math.ceil(shortest / max(trial.seconds, 1e-9)))
        counts[name] = min(rounds, int(patience / max(trial.seconds, shortest, 1e-9)))
        samples[name] = [] if counts[name] else [trial]
    for done in range(rounds):
        for name, step in steps.items():
            if done < counts[name]:
                if warm:
                    step()
                samples[name].append(_sample(step, repeats[name], clock))
    return samples


def summarise(samples: Sequence[Sample]) -> TimeSummary:
    """Summarise the samples that other processes hardly disturbed, or all samples if these are too few."""
    quiet = _quiet([(sample.seconds, sample.foreign) for sample in samples])
    median = statistics.median(quiet)
    return TimeSummary(median, len(quiet), (max(quiet) - min(quiet)) / median if median else 0.0)


def ratio(samples: Sequence[Sample], others: Sequence[Sample]) -> float:
    """Return the median over rounds of the samples' seconds divided by the others' seconds in the same round.

    Dividing within rounds matters because the machine's speed may change between them.
    """
    # Not strict, because a slow implementation has fewer samples.
    pairs = list(zip(samples, others, strict=False))
    return statistics.median(_quiet([(a.seconds / b.seconds, max(a.foreign, b.foreign)) for a, b in pairs]))


def _quiet(values: Sequence[tuple[float, float]]) -> list[float]:
    """Return the first of each pair whose second, the share of other processes, is small; all if these are too few."""
    quiet = [value for value, foreign in values if foreign <= FOREIGN]
    return quiet if len(quiet) >= FEWEST else [value for value, _ in values]


def _sample(step: Callable[[], object], repeats: int, clock: SystemClock) -> Sample:
    start, foreign = clock.now(), clock.foreign()
    for _ in range(repeats):
        step()
    spent = clock.now() - start
    share = (clock.foreign() - foreign) / (spent * clock.cores) if spent > 0 else 0.0
    return Sample(spent / repeats, min(1.0, max(0.0, share)))
