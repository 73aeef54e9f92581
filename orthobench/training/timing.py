"""Measure the seconds of a run, by phase."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from orthobench.store.result import CPU_SECONDS


class PhaseTimer:
    """Seconds spent in each phase of a run, and the CPU seconds of all phases; `phase` names the latest phase.

    CPU seconds count all threads of the process. Other load on the machine adds to the wall-clock seconds, but not to
    the CPU seconds.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self.phase = "train"
        self._counts_cpu = True

    def resume(self, seconds: Mapping[str, float]) -> None:
        """Continue from the seconds of a checkpoint; if it has no CPU seconds, none are counted."""
        self.seconds = dict(seconds)
        self._counts_cpu = not seconds or CPU_SECONDS in seconds

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time spent in the block to the phase. Queued CUDA work counts in the phase that waits for it."""
        start, cpu_start = time.perf_counter(), time.process_time()
        self.phase = phase
        try:
            yield
        finally:
            self._add(phase, time.perf_counter() - start)
            if self._counts_cpu:
                self._add(CPU_SECONDS, time.process_time() - cpu_start)

    def _add(self, phase: str, seconds: float) -> None:
        self.seconds[phase] = self.seconds.get(phase, 0.0) + seconds
