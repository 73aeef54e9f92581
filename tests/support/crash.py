"""The command line in processes that are killed.

A server imports the modules and computes nothing; each process is a fork of it and starts in a fraction of a second.
A kill comes before a line of the code, half-way through the file of a checkpoint, or after a delay.
"""

from __future__ import annotations

import functools
import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from orthobench.training.checkpoint import NEWEST

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest.__main__",  # the main module of these processes, too
        "alembic.command",
        "sqlalchemy.dialects.sqlite",
        "orthobench.api.papers",
        "orthobench.cli.session_display",
        "orthobench.data",
        "orthobench.probes.jacobian",
        *(f"orthobench.tasks.{name}" for name in ("adding", "ptb")),
        *(f"orthobench.models.{name}" for name in ("scornn", "lstm")),
    ]
)

FILES = {  # the stage of a run by watched file or folder; the first that fits counts
    "store/migrations/": "migration",
    "store/open.py": "migration",
    "store/": "database",
    "system/files.py": "replacement",  # of the files of checkpoints and of weights
    "training/checkpoint.py": "checkpoint",
    "training/lifecycle.py": "start",
    "training/loop.py": "training",
    "training/evaluator.py": "training",
    "training/recording.py": "recording",
    "training/resume.py": "resumption",
}
FUNCTIONS = {  # those of these files that belong to another stage
    "lock": "start",
    "start": "start",
    "_save": "checkpoint",
    "rename": "renaming",
    "log": "recording",
    "_metric_columns": "recording",
    "_finish": "end",
    "end": "end",
    "clear": "end",
}


@dataclass(frozen=True)
class Kill:
    """SIGKILL before the n-th watched line, half-way through the n-th file of a checkpoint, or after seconds."""

    line: int | None = None
    half: int | None = None
    delay: float | None = None


def call(
    folder: Path,
    arguments: Sequence[str],
    kill: Kill = Kill(),
    lines: Path | None = None,
    prepare: Callable[[Path], None] | None = None,
) -> int:
    """Call the command line in its own process, and return the exit code, which is negative for a signal.

    `folder/output` receives the output, and `lines` a line for each executed one: its function, and its key in `FILES`.
    The process first calls `prepare` with the folder.
    """
    process = FORKS.Process(target=_child, args=(folder, tuple(arguments), kill, lines, prepare))
    process.start()
    process.join(kill.delay)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


def stages(lines: Path) -> list[str]:
    """Return the stage of each executed line, from a file that `call` has written."""
    executed = [line.split() for line in lines.read_text().splitlines()]
    return [FUNCTIONS.get(function, FILES[file]) for function, file in executed]


def _child(
    folder: Path,
    arguments: tuple[str, ...],
    kill: Kill,
    lines: Path | None,
    prepare: Callable[[Path], None] | None,
) -> None:
    import torch

    output = os.open(folder / "output", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.chdir(folder)
    torch.set_num_threads(1)
    if prepare is not None:
        prepare(folder)
    if kill.half is not None:
        _die_writing(kill.half)

    from orthobench.__main__ import main

    sys.argv = ["orthobench", *arguments]
    watch = _Lines(kill.line)
    if kill.line is not None or lines is not None:
        sys.settrace(watch.entered)
    try:
        main()
    finally:
        sys.settrace(None)
        if lines is not None:
            lines.write_text("\n".join(watch.executed))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_writing(number: int) -> None:
    """Kill this process half-way through the file of the n-th checkpoint."""
    opened, numbers = Path.open, itertools.count(1)

    def half(self: Path, mode: str = "r", *arguments, **options):
        stream = opened(self, mode, *arguments, **options)
        # Only what is opened to be written, because each file is opened once more for its way to the disk.
        if self.name == f"{NEWEST}.part" and "w" in mode and next(numbers) == number:
            stream.write(b"PK\3\4" + bytes(3000))
            stream.flush()
            _die()
        return stream

    Path.open = half  # type: ignore[method-assign]


class _Lines:
    """A trace function that notes the watched lines, and kills the process before line number `last`."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.executed: list[str] = []

    def entered(self, frame: FrameType, event: str, argument: object):
        return None if _watched(frame.f_code.co_filename) is None else self.line

    def line(self, frame: FrameType, event: str, argument: object):
        if event == "line":
            if len(self.executed) == self.last:
                _die()
            self.executed.append(f"{frame.f_code.co_name} {_watched(frame.f_code.co_filename)}")
        return self.line


@functools.cache  # because the trace asks at every call of a function
def _watched(file: str) -> str | None:
    """Return the key of a file in `FILES`, or None if it is not watched."""
    return next((part for part in FILES if f"orthobench/{part}" in file), None)
