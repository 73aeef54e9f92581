"""Output that outlives its reader, and text from elsewhere without control characters."""

from __future__ import annotations

import errno
import io
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer


def open_closed_streams() -> None:
    """Open the null device in place of each standard stream that was closed before this process, as by `>&-`.

    Otherwise the next file, such as a database, would get its descriptor, and with it what other code prints there.
    """
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            stream = Path(os.devnull).open(mode, encoding="utf-8")  # noqa: SIM115 - open until the process ends
            # Inherited, because a process that is started from here would begin with a closed stream again.
            os.set_inheritable(stream.fileno(), True)
            setattr(sys, name, stream)


def send_nowhere(descriptor: int) -> None:
    """Discard all further output of a file descriptor."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def leave_terminal() -> None:
    """Discard the output of this process if its terminal has closed, because each write would fail."""
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
    """Replace each control character of a text by ?, except for line breaks and tabs."""
    return text.translate(_HARMFUL)


class HarmlessStream:
    """A text stream that writes ? instead of control characters.

    It hides the `buffer` of the stream, which would bypass the replacement. rich writes its own codes to the stream
    itself.
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
    """Replace control characters in the output of the `with` block."""
    streams = sys.stdout, sys.stderr
    sys.stdout, sys.stderr = (cast(TextIO, HarmlessStream(stream)) for stream in streams)
    try:
        yield
    finally:
        sys.stdout, sys.stderr = streams


@contextmanager
def lasting_output() -> Iterator[None]:
    """In the `with` block, discard the output as soon as its pipe or terminal has closed."""
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
    """Return a stream that writes to the same file and survives its reader; a stream without a file is returned."""
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
        # PYTHONUNBUFFERED=1 gives streams that write through; a line at a time is prompt enough.
        line_buffering=getattr(stream, "line_buffering", False) or getattr(stream, "write_through", False),
    )
