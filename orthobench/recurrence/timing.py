"""The time of each part of a step, for `bench --breakdown`."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext

FORWARD, BACKWARD = "forward", "backward"
WEIGHT_GRADIENT, PROJECTION, READOUT = "weight gradient", "input projection", "output map"

_recorded: dict[str, float] | None = None


@contextmanager
def record_times() -> Iterator[dict[str, float]]:
    """Sum the seconds of each `part` inside the block in the dictionary that it yields."""
    global _recorded
    before, _recorded = _recorded, {}
    try:
        yield _recorded
    finally:
        _recorded = before


def is_timing() -> bool:
    """Return whether parts are being timed."""
    return _recorded is not None


def part(name: str) -> AbstractContextManager[None]:
    """Time the block as this part, inside `record_times`. Parts do not overlap."""
    return nullcontext() if _recorded is None else _timed({name: lambda: 1.0}, _recorded)


def divided(name: str, inner: str, share: Callable[[], float]) -> AbstractContextManager[None]:
    """Time the block as two parts, inside `record_times`; afterwards `share` returns the inner part's share."""
    return nullcontext() if _recorded is None else _timed({name: lambda: 1 - share(), inner: share}, _recorded)


@contextmanager
def _timed(shares: Mapping[str, Callable[[], float]], seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        spent = time.perf_counter() - start
        for name, share in shares.items():
            seconds[name] = seconds.get(name, 0.0) + spent * share()
