"""The process of one run: `python -m orthobench.execution.worker`, started by the supervisor.

It reads a pickled `Job` from its input and writes what becomes of it to its output, one JSON object a line. The input
stays open: its end, for which the supervisor's death is enough, asks to stop, as SIGINT and SIGTERM do.
"""

from __future__ import annotations

import json
import logging
import os
import pickle
import signal
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, TextIO

if TYPE_CHECKING:
    from orthobench.store import Run
    from orthobench.training.events import Point

TELL_EVERY = 0.2
"""Seconds between two messages on iterations."""


class Teller:
    """An observer that tells the supervisor. Without one to tell, the run is asked to stop."""

    def __init__(self, channel: TextIO, stop: threading.Event) -> None:
        self.channel, self.stop = channel, stop
        self.told = 0.0

    def tell(self, kind: str, **content: Any) -> None:
        try:
            self.channel.write(json.dumps({"kind": kind, **content}) + "\n")
            self.channel.flush()
        except OSError:
            self.stop.set()

    def started(self, run: Run) -> None:
        self.tell("started")

    def iterated(self, iteration: int) -> None:
        if (now := time.monotonic()) - self.told >= TELL_EVERY:
            self.told = now
            self.tell("iterated", iteration=iteration)

    def tested(self, point: Point) -> None:
        self.tell("tested", **vars(point))

    def concluding(self, done: int, total: int) -> None:
        self.tell("concluding", done=done, total=total)


def main() -> None:
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a plugin prints is no message
    logging.basicConfig(format="%(message)s")
    logging.getLogger("orthobench").setLevel(logging.INFO)
    job = pickle.load(sys.stdin.buffer)

    def listen() -> None:
        os.read(0, 1)
        stop.set()

    threading.Thread(target=listen, daemon=True).start()
    from orthobench.execution.job import attempt

    teller = Teller(channel, stop)
    outcome = attempt(job, teller, stop.is_set)
    teller.tell("ended", ending=outcome.ending, cause=outcome.cause)


if __name__ == "__main__":
    main()
