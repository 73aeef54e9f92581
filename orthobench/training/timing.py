"""Account for the seconds of a run, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager


class PhaseTimer:
    """Seconds spent in each phase of a run; `phase` names the newest."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.phase = "train"

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time inside to the phase. Queued CUDA work counts where it is waited for."""
        start = time.perf_counter()
        self.phase = phase
        try:
            yield
        finally:
            self.seconds[phase] = self.seconds.get(phase, 0.0) + time.perf_counter() - start
