"""The worker process of one run, started by `ProcessExecutor` with `multiprocessing`.

It sends the events and the outcome of the run through a pipe. It stops when its parent sends anything or closes the
pipe, or on a signal of `system/signals.py`. So the worker outlives its parent by at most one iteration.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import os
import signal
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from multiprocessing.connection import Connection
from typing import Any

from orthobench.executors.job import Job, attempt
from orthobench.system.cores import set_session_niceness
from orthobench.system.output import lasting_output
from orthobench.system.signals import stop_signals
from orthobench.training.events import Relay

ITERATION_SECONDS = 0.2
"""Time between two messages about iterations."""


class PipeSink(Relay):
    """A sink that sends events to the parent process. If the parent has died, it asks the run to stop."""

    def __init__(self, parent: Connection, stop: threading.Event) -> None:
        self.parent, self.stop = parent, stop
        self.iteration_sent_at = 0.0

    def relay(self, event: str, *content: Any) -> None:
        if event == "on_iteration":
            if time.monotonic() - self.iteration_sent_at < ITERATION_SECONDS:
                return
            self.iteration_sent_at = time.monotonic()
        try:
            self.parent.send((event, *content))
        except OSError:
            self.stop.set()


def main(job: Job, parent: Connection, printed: Connection, environment: Mapping[str, str]) -> None:
    """Train a run in this process, which belongs to it alone.

    Args:
        parent: the pipe to the parent process.
        printed: the pipe for what this process prints.
        environment: the environment variables of the run.
    """
    # The session takes the niceness that the process inherited, so `nice orthobench sweep` gives way to other programs.
    os.setsid()
    set_session_niceness(os.nice(0))
    stop = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stop.set())
    signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGINT])  # see `preload.py`
    os.environ.clear()
    os.environ.update(environment)
    # By descriptors and not by sys.stdout, because C libraries print to descriptor 1 too.
    for descriptor in (1, 2):
        os.dup2(printed.fileno(), descriptor)
    printed.close()
    logging.basicConfig(format="%(message)s")
    logging.getLogger("orthobench").setLevel(logging.INFO)

    def wait_for_parent() -> None:
        with suppress(EOFError, OSError):
            parent.recv()
        stop.set()

    threading.Thread(target=wait_for_parent, daemon=True).start()
    sink = PipeSink(parent, stop)
    try:
        with lasting_output():
            outcome = attempt(job, sink, stop.is_set)
        sink.relay("outcome", outcome.ending, outcome.cause, outcome.traceback)
    finally:
        # What the interpreter does at its end, in its order, because a fork of multiprocessing ends without it.
        threading._shutdown()  # type: ignore[attr-defined]
        atexit._run_exitfuncs()
        ctypes.CDLL(None).fflush(None)  # what C libraries printed
