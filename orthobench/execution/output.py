"""Output that outlives its reader: a pipe or terminal that closes never ends a run."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

if TYPE_CHECKING:
    from typing_extensions import Buffer


def send_nowhere(descriptor: int) -> None:
    """Send further output of a file descriptor to nowhere."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def leave_terminal() -> None:
    """Send the output of this process to nowhere if its terminal has closed: each write would fail."""
    for descriptor in (1, 2):
        with suppress(OSError):
            if stat.S_ISCHR(os.fstat(descriptor).st_mode) and not os.isatty(descriptor):
                send_nowhere(descriptor)


@contextmanager
def lasting_output() -> Iterator[None]:
    """Inside the block, send the output to nowhere from the moment that its pipe or terminal has closed."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = _lasting(sys.stdout), _lasting(sys.stderr)
    try:
        yield
    finally:
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        sys.stdout, sys.stderr = streams


class _LastingFile(io.FileIO):
    """A file that accepts writes after its reader has gone."""

    def write(self, data: Buffer, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno not in (errno.EPIPE, errno.EIO):
                raise
            send_nowhere(self.fileno())
            return memoryview(data).nbytes


def _lasting(stream: TextIO) -> TextIO:
    """Return a lasting stream onto the file of a stream; a stream without a file stays as it is."""
    try:
        descriptor = stream.fileno()
    except (AttributeError, OSError, ValueError):
        return stream
    with suppress(BrokenPipeError):  # the next write notices it
        stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(_LastingFile(descriptor, "w", closefd=False)),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=getattr(stream, "line_buffering", False),
    )
