"""The signals that ask a process to stop its runs: Ctrl-C, the system's request to end, and the end of its terminal."""

from __future__ import annotations

import signal

HANGUP = getattr(signal, "SIGHUP", None)
"""The signal that a process receives when its terminal closes; None on Windows."""
REQUESTS = (signal.SIGINT, signal.SIGTERM) if HANGUP is None else (signal.SIGINT, signal.SIGTERM, HANGUP)


def stop_signals() -> list[signal.Signals]:
    """Return the signals that ask this process to stop.

    SIGHUP is not among them where it is ignored: the user started the process with nohup, to outlive the terminal.
    """
    return [number for number in REQUESTS if number != HANGUP or signal.getsignal(number) != signal.SIG_IGN]
