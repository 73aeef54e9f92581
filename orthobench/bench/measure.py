"""Interleaved timing on a machine that others use too."""

from __future__ import annotations

import math
import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import psutil

SHORTEST = 0.25
"""Seconds that a sample lasts at least: the system counts the others' time in hundredths of a second."""
PATIENCE = 20.0
"""Seconds that all samples of one implementation may last."""
FOREIGN = 0.1
"""Share of the machine that others may take of a sample before it is left out."""
FEWEST = 3
"""Unless fewer samples than this would be left."""


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since some start."""

    def foreign(self) -> float:
        """Core-seconds that other processes have used since some start."""

    @property
    def cores(self) -> int:
        """How many cores there are to use."""


class SystemClock:
    cores = os.cpu_count() or 1
    now = staticmethod(time.perf_counter)

    def foreign(self) -> float:
        times = psutil.cpu_times()._asdict()
        idle = ("idle", "iowait", "guest", "guest_nice")  # a guest's time is in the user's already
        busy: float = sum(spent for kind, spent in times.items() if kind not in idle)
        return busy - time.process_time()


@dataclass(frozen=True)
class Sample:
    """Seconds a step took, and the share of the machine, 0 to 1, that other processes used meanwhile."""

    seconds: float
    foreign: float


@dataclass(frozen=True)
class Summary:
    """Median seconds of a step over n samples, and their range as a share of it."""

    seconds: float
    n: int
    spread: float


def interleave(
    steps: Mapping[str, Callable[[], object]],
    rounds: int,
    clock: Clock,
    shortest: float = SHORTEST,
    patience: float = PATIENCE,
) -> dict[str, list[Sample]]:
    """Time all steps in every round, one after the other.

    The first step of each pays for fresh memory and for what is made once; the second says how many steps make a
    sample and how many samples fit into `patience`. One that takes longer than that is the only sample.
    """
    samples: dict[str, list[Sample]] = {}
    repeats, wanted = {}, {}
    for name, step in steps.items():
        trial = _sample(step, 1, clock)
        if trial.seconds <= patience:
            trial = _sample(step, 1, clock)
        repeats[name] = max(1, math.ceil(shortest / max(trial.seconds, 1e-9)))
        wanted[name] = min(rounds, int(patience / max(trial.seconds, shortest, 1e-9)))
        samples[name] = [] if wanted[name] else [trial]
    for done in range(rounds):
        for name, step in steps.items():
            if done < wanted[name]:
                samples[name].append(_sample(step, repeats[name], clock))
    return samples


def summarise(samples: Sequence[Sample]) -> Summary:
    """Over the samples that others disturbed little, if there are enough of those, else over all."""
    kept = _quiet([(sample.seconds, sample.foreign) for sample in samples])
    median = statistics.median(kept)
    return Summary(median, len(kept), (max(kept) - min(kept)) / median if median else 0.0)


def ratio(samples: Sequence[Sample], others: Sequence[Sample]) -> float:
    """Seconds of these over seconds of the others, as the median of the rounds both took part in.

    Round by round, since the machine's own speed may change between rounds.
    """
    pairs = list(zip(samples, others, strict=False))
    return statistics.median(_quiet([(a.seconds / b.seconds, max(a.foreign, b.foreign)) for a, b in pairs]))


def _quiet(found: Sequence[tuple[float, float]]) -> list[float]:
    """The values whose second number, the share that other processes took, is small; all where those are too few."""
    quiet = [value for value, foreign in found if foreign <= FOREIGN]
    return quiet if len(quiet) >= FEWEST else [value for value, _ in found]


def _sample(step: Callable[[], object], repeats: int, clock: Clock) -> Sample:
    begun, foreign = clock.now(), clock.foreign()
    for _ in range(repeats):
        step()
    spent = clock.now() - begun
    share = (clock.foreign() - foreign) / (spent * clock.cores) if spent > 0 else 0.0
    return Sample(spent / repeats, min(1.0, max(0.0, share)))
