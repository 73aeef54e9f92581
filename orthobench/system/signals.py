"""The signals that stop a process, and what they may interrupt."""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.machinery import ModuleSpec
from types import FrameType, ModuleType
from typing import Any

from orthobench.system.output import leave_terminal

HANGUP = getattr(signal, "SIGHUP", None)
"""The signal that a process receives when its terminal closes; None on Windows."""
FIRM = (signal.SIGINT, signal.SIGTERM)
"""The signals of somebody who waits for the end, so that a second one stops at once."""
WARNINGS = ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGXCPU")
"""Other signals that announce the end of a process: of its terminal, of its time on a cluster (batch systems send one
of the next two before it), and of its CPU time, of which Linux warns each second. Windows has none of them."""
REQUESTS = (*FIRM, *(signal.Signals[name] for name in WARNINGS if name in signal.Signals.__members__))
"""The signals that ask a process to stop."""


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to stop.

    Those of `WARNINGS` are not among them if they are ignored, as SIGHUP is if the user started the process with nohup.
    """
    return [number for number in REQUESTS if number in FIRM or signal.getsignal(number) != signal.SIG_IGN]


@contextmanager
def handled(handler: Callable[[int, FrameType | None], Any] = signal.default_int_handler) -> Iterator[None]:
    """In the `with` block, call a handler on each signal that asks this process to stop.

    The default handler treats each of them as Ctrl-C. Only the main thread can receive signals, so nothing changes in
    other threads.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, handler) for number in stop_signals()}
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


class LoadingTorch:
    """An import hook that lets Ctrl-C end the process at once while torch is being imported.

    The import of torch calls C code that may drop a KeyboardInterrupt. Ending the process is safe, because nothing is
    open or written before this import.
    """

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """Return a spec of torch whose import ends the process on Ctrl-C; None for any other module."""
        if name != "torch":
            return None
        # Out of the list first, because the search for torch's own spec would come back here.
        sys.meta_path.remove(self)
        spec = importlib.util.find_spec(name)
        if spec is not None and spec.loader is not None:
            load = spec.loader.exec_module

            def load_and_stop(module: ModuleType) -> None:
                with ending_at_once():
                    load(module)

            spec.loader.exec_module = load_and_stop  # type: ignore[method-assign]
        return spec


def stop_while_torch_is_loaded() -> None:
    """Let Ctrl-C end this process at once while torch is being imported, whenever that happens."""
    if "torch" not in sys.modules and not any(isinstance(finder, LoadingTorch) for finder in sys.meta_path):
        sys.meta_path.insert(0, LoadingTorch())


@contextmanager
def ending_at_once() -> Iterator[None]:
    """In the `with` block, end the process on Ctrl-C with one line and exit code 130, without an exception.

    Nothing changes in other threads than the main one, or if the program has its own handler.
    """
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
        yield
        return
    signal.signal(signal.SIGINT, _end)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)


def _end(number: int, frame: FrameType | None) -> None:
    os.write(2, b"stopped\n")
    os._exit(130)


class Stopped(KeyboardInterrupt):
    """The user stopped the session. Every run has its checkpoint, so the same call resumes the runs."""


class StopRequest:
    """The request to stop. The first Ctrl-C stops runs after their current iteration, the second one immediately.

    The first one also stops immediately if no code checks the request yet, for example while data is loaded. A terminal
    that closes or a limit of CPU time may send its signal more than once, so these never stop immediately.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.is_requested = self.is_watched = self.is_out_of_time = False
        self.on_request = on_request

    def __call__(self) -> bool:
        self.is_watched = True
        return self.is_requested

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: this is the second signal, or no code checks the request yet.
        """
        if number == HANGUP:
            leave_terminal()
        if not self.is_watched or (self.is_requested and number in FIRM):
            raise KeyboardInterrupt
        self.is_requested = True
        self.is_out_of_time |= number == getattr(signal, "SIGXCPU", None)
        self.on_request()


@contextmanager
def stop_on_signals(request: StopRequest) -> Iterator[None]:
    """Turn the signals of `REQUESTS` into a request to stop; a process without CPU time ignores SIGXCPU afterwards."""
    try:
        with handled(request.handle):
            yield
    finally:
        if request.is_out_of_time:  # because Linux repeats the signal each second while the process ends
            signal.signal(signal.SIGXCPU, signal.SIG_IGN)
