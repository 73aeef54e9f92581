"""Start processes that do not run the user's script again.

multiprocessing's "spawn" imports the main file in each new process. A script that calls orthobench at its top level,
without `if __name__ == "__main__"`, would then call it in each of them as well, and they would fail.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext, SpawnProcess

_start = threading.Lock()


class _Process(SpawnProcess):
    def start(self) -> None:
        # One at a time, because another thread would see the main module without its file, or put it back too early.
        with _start, _without_main_file():
            super().start()


class Spawning(SpawnContext):
    """The context "spawn" of multiprocessing, whose processes import no main file. They get no class of that file."""

    Process = _Process  # type: ignore[assignment, unused-ignore]


@contextmanager
def _without_main_file() -> Iterator[None]:
    """Hide in the `with` block where the main module's code is, which multiprocessing would pass on."""
    main = vars(sys.modules["__main__"])
    places: dict[str, object] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
    main.update(dict.fromkeys(places))
    try:
        yield
    finally:
        main.update(places)
