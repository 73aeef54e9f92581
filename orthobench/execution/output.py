"""Output that outlives its reader and controls no terminal.

A pipe or terminal that closes never ends a run. Texts of databases, plugins and errors come from anywhere: their
control characters would clear the screen, write to the clipboard or hide a line.
"""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TextIO, cast

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


_HARMFUL = {
    code: "?"
    for codes in (range(0x20), range(0x7F, 0xA0), range(0x202A, 0x202F), range(0x2066, 0x206A))
    for code in codes
    if chr(code) not in "\t\n"
}
"""The control characters C0 and C1, DEL, and those that override the direction of writing."""


def harmless(text: str) -> str:
    """Return a text with ? for each character that controls a terminal; lines and tabs stay."""
    return text.translate(_HARMFUL)


class HarmlessStream:
    """A text stream that writes ? for control characters.

    It hides the stream's `buffer`, past which a program could write. rich takes the stream itself for its own codes.
    """

    def __init__(self, stream: TextIO) -> None:
        self.rich_proxied_file = stream

    def write(self, text: str) -> int:
        return self.rich_proxied_file.write(harmless(text))

    def writelines(self, lines: Iterable[str]) -> None:
        self.rich_proxied_file.writelines(map(harmless, lines))

    def __getattr__(self, name: str) -> Any:
        if name == "buffer":
            raise AttributeError(name)
        return getattr(self.rich_proxied_file, name)


@contextmanager
def harmless_output() -> Iterator[None]:
    """Inside the block, print no control characters of texts."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, HarmlessStream(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


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
    if isinstance(stream, HarmlessStream):
        return cast(TextIO, HarmlessStream(_lasting(stream.rich_proxied_file)))
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
