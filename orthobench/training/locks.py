"""One process at a time trains a run or cleans its folder."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

from filelock import FileLock

GUARD = ".guard"
"""The file in the folder of all checkpoints that a process locks while it locks or releases a run."""
GUARD_TIMEOUT = 60.0
"""Seconds that a process waits for its turn; a turn takes milliseconds."""

QUESTION_TIMEOUT = 0.02
"""Seconds that a process tries to lock a run, because another process's `is_locked` may briefly hold the lock."""


def take_turn(root: Path) -> AbstractContextManager[object]:
    """Keep other processes from locking or releasing runs in this folder until the context ends.

    Raises:
        Timeout: another process took too long.
        OSError: the folder cannot be written.
    """
    return FileLock(root / GUARD, timeout=GUARD_TIMEOUT).acquire(poll_interval=0.002)


@contextmanager
def hold_shared(file: Path, timeout: float = 0.0) -> Iterator[None]:
    """Hold a shared lock on an existing file, which stays as it is, until the context ends.

    Raises:
        BlockingIOError: another process still holds the file's lock after `timeout` seconds.
        OSError: the file does not exist, is a link, or cannot be read.
    """
    deadline = time.monotonic() + timeout
    # Without O_CREAT, and with a shared lock, because a question must leave
    # nothing behind, and several may ask at once.
    descriptor = os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise
                # Polled, because flock has no time limit of its own.
                time.sleep(0.002)
        yield
    finally:
        os.close(descriptor)
