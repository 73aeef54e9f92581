"""The seconds of the parts of a training step. Nothing is timed outside `record`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext

FORWARD, BACKWARD = "forward", "backward"
WEIGHT_GRADIENT, PROJECTION = "weight gradient", "input projection"

_recorded: dict[str, float] | None = None


@contextmanager
def record() -> Iterator[dict[str, float]]:
    """Add up the seconds of each `part` inside the block, in the dictionary that it yields."""
    global _recorded
    before, _recorded = _recorded, {}
    try:
        yield _recorded
    finally:
        _recorded = before


def part(name: str) -> AbstractContextManager[None]:
    """Time the block as this part, inside `record`. Parts do not overlap."""
    return nullcontext() if _recorded is None else _timed(name, _recorded)


@contextmanager
def _timed(name: str, seconds: dict[str, float]) -> Iterator[None]:
    start = time.perf_counter()
    try:
        yield
    finally:
        seconds[name] = seconds.get(name, 0.0) + time.perf_counter() - start
