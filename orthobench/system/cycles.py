"""Pause Python's search for cyclic garbage while many records are read."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def without_cycle_search() -> Iterator[None]:
    """Pause the search for cyclic garbage; also a decorator.

    The search visits all objects again and again, which takes a quarter of the time of a large report, or of a list of
    thousands of runs. They create few cycles, so pausing hardly changes the memory.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
