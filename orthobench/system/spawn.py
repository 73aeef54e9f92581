"""Start processes that do not run the user's script again.

multiprocessing's "spawn" and "forkserver" import the main file in each new process. A script that calls orthobench at
its top level, without `if __name__ == "__main__"`, would then call it in each of them as well, and they would fail.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import forkserver, get_context, resource_tracker
from multiprocessing.context import SpawnContext, SpawnProcess
from multiprocessing.process import BaseProcess
from pathlib import Path

from orthobench.system.signals import REQUESTS

_start = threading.Lock()


class _Process(SpawnProcess):
    def start(self) -> None:
        with _without_main_file():
            super().start()


class Spawning(SpawnContext):
    """The context "spawn" of multiprocessing, whose processes import no main file. They get no class of that file."""

    Process = _Process  # type: ignore[assignment, unused-ignore]


def start(process: BaseProcess) -> None:
    """Start a process of any context of multiprocessing, which then imports no main file."""
    with _without_main_file():
        process.start()


def start_fork_server(preload: Sequence[str]) -> None:
    """Start the process that forks the processes of "forkserver", and wait until it can.

    It imports the modules `preload`. The signals of `REQUESTS` are blocked there until a fork unblocks them, and in the
    thread that calls this function.

    Raises:
        OSError, EOFError: the process cannot be started, or it has ended.
    """
    # The path, because the program may have added folders. No current folder in it, because that may hold a file such
    # as random.py, which Python would import in place of its own.
    path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    ours = {name: os.environ.get(name) for name in ("PYTHONPATH", "PYTHONSAFEPATH")}
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)
    resource_tracker.ensure_running()
    signal.pthread_sigmask(signal.SIG_BLOCK, REQUESTS)  # again, because the tracker unblocks two of them
    os.environ |= {"PYTHONPATH": path, "PYTHONSAFEPATH": "1"}
    try:
        forkserver.set_forkserver_preload([*preload])
        forkserver.ensure_running()
    finally:
        for name, value in ours.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    first = get_context("forkserver").Process(target=int)
    start(first)
    first.join()


@contextmanager
def _without_main_file() -> Iterator[None]:
    """Hide in the `with` block where the main module's code is, which multiprocessing would pass on."""
    # One at a time, because another thread would see the main module without its file, or put it back too early.
    with _start:
        main = vars(sys.modules["__main__"])
        places: dict[str, object] = {name: main[name] for name in ("__file__", "__spec__") if name in main}
        main.update(dict.fromkeys(places))
        try:
            yield
        finally:
            main.update(places)
