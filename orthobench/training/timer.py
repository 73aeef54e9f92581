"""The seconds of a run by phase, measured by the host, or on a GPU by events between its kernels.

A GPU works behind the host, which queues work in one phase and waits for it in another. An event that is recorded at
the start and end of a phase is reached when the work queued before it is done. So the time between the two belongs to
the phase that queued the work, and the phases still add up to the time of the run. Nothing waits for an event until the
seconds are read: after an evaluation, whose numbers the host has already waited for, or for a checkpoint, whose state
the host needs anyway.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import torch
from torch.cuda import Event

from orthobench.store.result import CLOCK, CPU_SECONDS, EVENTS


def events_of(device: torch.device) -> Callable[[], Event] | None:
    """Return what creates events on a device, or None where the host does the work itself."""
    return functools.partial(Event, enable_timing=True) if device.type == "cuda" else None


class PhaseTimer:
    """Seconds spent in each phase of a run, and the CPU seconds of all phases; `phase` names the latest phase.

    CPU seconds count all threads of the process. Other load on the machine adds to the wall-clock seconds, but not to
    the CPU seconds.

    Args:
        new_event: creates an event; None: the host's clock measures the phases.
    """

    def __init__(self, new_event: Callable[[], Event] | None = None) -> None:
        self.new_event, self.phase = new_event, "train"
        self._seconds: dict[str, float] = {}
        self._timed: list[tuple[str, Event, Event]] = []  # phases whose events may not have been reached
        self._is_known = True  # whether events have measured all earlier seconds

    @contextmanager
    def __call__(self, phase: str) -> Iterator[None]:
        """Add the time of the block, and of the work that it queues, to the phase."""
        start, cpu_start = time.perf_counter(), time.process_time()
        self.phase = phase
        events = self._begin(phase)
        try:
            yield
        finally:
            if events is None:
                self._add(phase, time.perf_counter() - start)
            else:
                with self._unless_lost():
                    events[1].record()
                    self._timed.append((phase, *events))
            self._add(CPU_SECONDS, time.process_time() - cpu_start)

    def read(self) -> dict[str, float | str]:
        """Return the seconds by phase, the CPU seconds, and for a GPU the clock; wait until the GPU is done."""
        with self._unless_lost():
            if self._timed:
                self._timed[-1][-1].synchronize()
            for phase, first, last in self._timed:
                self._add(phase, first.elapsed_time(last) / 1000)
        self._timed.clear()
        clock = {CLOCK: EVENTS} if self.new_event is not None and self._is_known else {}
        return {**self._seconds, **clock}

    def rounded(self) -> dict[str, float | str]:
        """Return what `read` returns, with seconds as the database stores them."""
        return {name: value if isinstance(value, str) else round(value, 4) for name, value in self.read().items()}

    def restore(self, seconds: Mapping[str, float | str]) -> None:
        """Continue with the seconds that an earlier process has read."""
        self._seconds = {name: value for name, value in seconds.items() if not isinstance(value, str)}
        self._timed.clear()
        self._is_known = not self._seconds or seconds.get(CLOCK) == EVENTS

    def _begin(self, phase: str) -> tuple[Event, Event] | None:
        """Return the events at the start and end of a phase; a phase that goes on, as training does, keeps its own."""
        if self.new_event is None:
            return None
        if self._timed and self._timed[-1][0] == phase:
            return self._timed.pop()[1:]
        events = self.new_event(), self.new_event()
        with self._unless_lost():
            events[0].record()
        return events

    @contextmanager
    def _unless_lost(self) -> Iterator[None]:
        """Do without the times of a GPU that an error has stopped, so that the run can still store this error."""
        try:
            yield
        except RuntimeError:
            self._is_known = False

    def _add(self, phase: str, seconds: float) -> None:
        self._seconds[phase] = self._seconds.get(phase, 0.0) + seconds
