"""A sweep within a given time: which of its runs fit, and when no further one is started."""

from __future__ import annotations

import heapq
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence

from orthobench.errors import UsageError
from orthobench.execution.estimate import Estimate
from orthobench.sweep.plan import PlannedRun

UNITS = {"d": 86_400, "h": 3_600, "m": 60, "s": 1}
DURATION = "".join(rf"(?:(\d+(?:\.\d+)?){unit})?" for unit in UNITS)


def parse_duration(text: str) -> float:
    """Seconds of a text such as 8h, 90m, 1h30m or 2d.

    Raises:
        UsageError: it is none, or no time at all.
    """
    found = re.fullmatch(DURATION, text.strip().replace(" ", ""))
    counts = found.groups(default="0") if found else ()
    seconds = sum(float(count) * size for count, size in zip(counts, UNITS.values(), strict=False))
    if not seconds:
        raise UsageError(f"--budget '{text}' is not a time: write 8h, 90m or 1h30m")
    return seconds


def show_duration(seconds: float) -> str:
    """A time in its two largest units: 2d 4h, 1h 30m, 4m 10s, 12s."""
    left = max(1, round(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in UNITS.items():
        count, left = divmod(left, size)
        if parts or count:
            parts.append((count, unit))
    return " ".join(f"{count}{unit}" for count, unit in parts[:2] if count)


def by_priority(planned: Sequence[PlannedRun]) -> list[PlannedRun]:
    """The runs to train: first those that were begun, then the plan's order, last those that failed before."""
    rank = {"interrupted": 0, "failed": 2}
    return sorted((one for one in planned if one.is_pending), key=lambda one: rank.get(one.state, 1))


class Budget:
    """Seconds that run from now on."""

    def __init__(self, seconds: float, clock: Callable[[], float] = time.monotonic) -> None:
        self.seconds, self.clock = seconds, clock
        self.begun = clock()

    def is_spent(self) -> bool:
        return self.clock() - self.begun >= self.seconds


def span(seconds: Iterable[float], at_once: int) -> float:
    """How long runs take that are started in this order, so many beside each other."""
    free = [0.0] * at_once
    for one in seconds:
        heapq.heapreplace(free, free[0] + one)
    return max(free)


def within(
    planned: Sequence[PlannedRun], estimates: Mapping[str, Estimate], budget: float, at_once: int = 1
) -> list[PlannedRun]:
    """The runs that fit into a budget of seconds, in the order of their priority.

    One that does not fit, or of which it is not known, is passed over, and a shorter one after it may still be taken.

    Args:
        estimates: by key.
        at_once: how many runs are trained beside each other.
    """
    free = [0.0] * at_once
    taken = []
    for one in by_priority(planned):
        seconds = estimates[one.config.spec.key].seconds
        if seconds is not None and free[0] + seconds <= budget:
            heapq.heapreplace(free, free[0] + seconds)
            taken.append(one)
    return taken
