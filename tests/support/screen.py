"""A terminal whose screen a test reads back, as a person sees it."""

from __future__ import annotations

import errno
import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pyte

ORTHOBENCH = (sys.executable, "-m", "orthobench")
ROWS = 100
"""The height of the terminal, in rows; more than a command prints, so that nothing leaves the screen at its top."""


class Shown:
    """What a terminal showed while a command ran.

    Attributes:
        frames: the lines of the screen without the blanks at their ends, after each piece of output
            and before each return to the beginning of a line.
        output: what the command wrote to the terminal.
        code: the exit code of the command.
    """

    def __init__(self, frames: list[list[str]], output: bytes, code: int) -> None:
        self.frames = frames
        self.output = output
        self.code = code

    @property
    def lines(self) -> list[str]:
        """The lines as the command wrote them, without colours; the terminal breaks those that are too long."""
        return re.sub(r"\x1b\[[0-9;]*m", "", self.output.decode()).split("\r\n")

    @property
    def end(self) -> str:
        """The screen at the end."""
        return "\n".join(self.frames[-1]).rstrip("\n")

    def most(self, start: str) -> int:
        """Return how many lines began with a text at the same time, at most."""
        return max(sum(line.startswith(start) for line in frame) for frame in self.frames)

    def has(self, text: str) -> bool:
        """Return whether the screen showed a text at some time."""
        return any(text in line for frame in self.frames for line in frame)


def watch(command: Sequence[str], folder: Path, columns: int) -> Shown:
    """Run a program on a terminal of `columns` columns, and return what its screen showed."""
    parent, child = pty.openpty()
    fcntl.ioctl(child, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, columns, 0, 0))
    # Without the variables by which rich would choose another width than the terminal's, or no terminal.
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    kept["TERM"] = "xterm-256color"
    process = subprocess.Popen(command, cwd=folder, env=kept, stdin=child, stdout=child, stderr=child)
    os.close(child)
    screen = pyte.Screen(columns, ROWS)
    stream = pyte.ByteStream(screen)
    frames, output = [], b""
    while piece := _read(parent):
        output += piece
        for part in re.split(rb"(?=\r)", piece):  # a program that renews its rows begins with this character
            stream.feed(part)
            frames.append([line.rstrip() for line in screen.display])
    os.close(parent)
    return Shown(frames, output, process.wait())


def _read(terminal: int) -> bytes:
    """Read the next output; nothing once all programs have closed the terminal, which Linux reports as an error."""
    try:
        return os.read(terminal, 1 << 16)
    except OSError as error:
        if error.errno != errno.EIO:
            raise
        return b""
