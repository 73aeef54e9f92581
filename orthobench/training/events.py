"""Who watches a run: the command line's progress display, a sweep's supervisor, or nobody."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from orthobench.store import Run


@dataclass(frozen=True)
class Point:
    """Where a run stands after a test: what an observer shows."""

    iteration: int
    epoch: int
    loss: float | None
    metrics: dict[str, float]


class Observer(Protocol):
    """Watches a run; the command line's progress display is one."""

    def started(self, run: Run) -> None: ...
    def iterated(self, iteration: int) -> None: ...
    def tested(self, point: Point) -> None: ...
    def concluding(self, done: int, total: int) -> None: ...


class Unwatched:
    """An observer who looks away."""

    def started(self, run: Run) -> None: ...
    def iterated(self, iteration: int) -> None: ...
    def tested(self, point: Point) -> None: ...
    def concluding(self, done: int, total: int) -> None: ...
