"""The worker process of one run, started by `ProcessExecutor`: a fork, or `python -m orthobench.executors.worker`.

It reads a pickled `Job` from its input, and writes the events and the outcome of the run to its output, one JSON object
per line. It stops when its input ends, or on SIGINT, SIGTERM or SIGHUP. So the worker outlives its parent by at most
one iteration.
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
from typing import Any, TextIO

from orthobench.executors.job import attempt
from orthobench.system.cores import set_session_niceness
from orthobench.system.output import lasting_output
from orthobench.system.signals import stop_signals
from orthobench.training.events import Relay

ITERATION_SECONDS = 0.2
"""Time between two messages about iterations."""


class PipeSink(Relay):
    """A sink that writes events to the parent process. If the parent has died, it asks the run to stop."""

    def __init__(self, channel: TextIO, stop: threading.Event) -> None:
        self.channel, self.stop = channel, stop
        self.iteration_sent_at = 0.0

    def send(self, message: dict[str, Any]) -> None:
        try:
            self.channel.write(json.dumps(message) + "\n")
            self.channel.flush()
        except OSError:
            self.stop.set()

    def on_iteration(self, iteration: int) -> None:
        if (now := time.monotonic()) - self.iteration_sent_at >= ITERATION_SECONDS:
            self.iteration_sent_at = now
            super().on_iteration(iteration)


def main() -> None:
    # A worker has a session of its own. It takes the niceness that the process inherited, so `nice orthobench sweep`
    # gives way to other programs.
    set_session_niceness(os.nice(0))
    stop = threading.Event()
    for number in stop_signals():
        signal.signal(number, lambda *_: stop.set())
    # By descriptors and not by sys.stdout, because C libraries print to descriptor 1 too.
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what a plugin prints must not look like a message
    logging.basicConfig(format="%(message)s")
    logging.getLogger("orthobench").setLevel(logging.INFO)
    job = pickle.load(sys.stdin.buffer)

    def wait_for_end_of_input() -> None:
        os.read(0, 1)
        stop.set()

    threading.Thread(target=wait_for_end_of_input, daemon=True).start()
    sink = PipeSink(channel, stop)
    with lasting_output():
        outcome = attempt(job, sink, stop.is_set)
    sink.send({"kind": "outcome", "ending": outcome.ending, "cause": outcome.cause, "traceback": outcome.traceback})


if __name__ == "__main__":
    main()
