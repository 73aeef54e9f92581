"""Stop the runs of a session: signals set a request, and the session ends with an exception."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from types import FrameType

from orthobench.process.output import leave_terminal
from orthobench.process.signals import HANGUP, handled


class Stopped(KeyboardInterrupt):
    """The user stopped the session. Every run has its checkpoint, so the same call resumes the runs."""


class StopRequest:
    """The request to stop. The first Ctrl-C stops runs after their current iteration, the second one immediately.

    The first one also stops immediately if no code checks the request yet, for example while data is loaded. A terminal
    that closes may send SIGHUP more than once, so this signal never stops immediately.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.is_requested = self.is_watched = False
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
        if not self.is_watched or (self.is_requested and number != HANGUP):
            raise KeyboardInterrupt
        self.is_requested = True
        self.on_request()


def stop_on_signals(request: StopRequest) -> AbstractContextManager[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request to stop."""
    return handled(request.handle)
