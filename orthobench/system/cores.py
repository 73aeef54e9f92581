"""The cores that this process may use, what its idle threads do, and its priority."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from pathlib import Path

IDLE_THREADS = {"OMP_WAIT_POLICY": "PASSIVE", "OPENBLAS_NUM_THREADS": "1"}
"""Environment variables that keep idle threads from occupying cores, unless the user has set them.

OpenMP threads spin after each operation of torch, and OpenBLAS threads in NumPy and SciPy slow down small computations
such as eigenvalues by a factor of a hundred.
"""


def quiet_idle_threads() -> None:
    """Set IDLE_THREADS, unless torch is imported already, because its OpenMP library reads them only once."""
    if "torch" not in sys.modules:
        for name, value in IDLE_THREADS.items():
            os.environ.setdefault(name, value)


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def set_session_niceness(nice: int, process: int | str = "self") -> None:
    """Set the niceness of a process's session, where the system has one.

    Linux shares the cores among sessions first (`man 7 sched`, autogroup), so the niceness of a process alone counts
    only within its own session.
    """
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(str(nice))


def counts_cpu_time(device: str, threads: object) -> bool:
    """Return whether CPU time says how long a program takes: with one thread, and without a GPU.

    Other programs on the machine add to the wall clock alone, where the two differ by a factor of five.
    """
    return device == "cpu" and threads == 1
