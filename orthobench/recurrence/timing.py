"""The time of each phase of a step."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

FORWARD, BACKWARD = "forward", "backward"
WEIGHT_GRADIENT, PROJECTION, READOUT = "weight gradient", "input projection", "output map"

_recorded: dict[str, float] | None = None


@contextmanager
def record_times() -> Iterator[dict[str, float]]:
    """Sum the seconds of each phase that is `timed` inside the block in the dictionary that it yields."""
    global _recorded
    before, _recorded = _recorded, {}
    try:
        yield _recorded
    finally:
        _recorded = before


def is_timing() -> bool:
    """Return whether phases are being timed."""
    return _recorded is not None


def timed(name: str) -> AbstractContextManager[None]:
    """Time the block as this phase, inside `record_times`. Phases do not overlap."""
    return nullcontext() if _recorded is None else _adding({name: lambda: 1.0}, _recorded)


def timed_in_two(name: str, inner: str, share: Callable[[], float]) -> AbstractContextManager[None]:
    """Time the block as two phases, inside `record_times`; afterwards `share` returns the inner one's share."""
    return nullcontext() if _recorded is None else _adding({name: lambda: 1 - share(), inner: share}, _recorded)


@contextmanager
def _adding(shares: Mapping[str, Callable[[], float]], seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - start
        for name, share in shares.items():
            seconds[name] = seconds.get(name, 0.0) + spent * share()
