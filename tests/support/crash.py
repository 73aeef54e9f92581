"""The command line in processes that are killed.

A server imports the modules and computes nothing; each process is a fork of it and starts in a fraction of a second.
A kill comes before a line of the code, half-way through the file of a checkpoint, or after a delay.
"""

from __future__ import annotations

import itertools
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(
    [
        "pytest.__main__",  # the main module of these processes, too
        "torch._dynamo",  # which every optimiser imports
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

STAGES = {  # of a run, by function, else by folder or file
    "open_store": "migration",
    "upgrade": "migration",
    "back_up": "migration",
    "_migrate": "migration",
    "start": "start",
    "__init__": "start",
    "lock": "start",
    "log": "logging",
    "_update": "logging",
    "_metric_columns": "logging",
    "_finish": "end",
    "clear": "end",
    "train": "end",
    "checkpoint.py": "checkpointing",
    "atomic.py": "checkpointing",
    "_save": "checkpointing",
    "_restore": "checkpointing",
    "versions": "migration",
    "open.py": "migration",
}
WATCHED = ("checkpoint.py", "atomic.py", "lifecycle.py", "recording.py", f"store{os.sep}")


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

    `folder/output` receives the output, and `lines` the stages of the executed lines. The process first calls `prepare`
    with the folder.
    """
    process = FORKS.Process(target=_child, args=(folder, tuple(arguments), kill, lines, prepare))
    process.start()
    process.join(kill.delay)
    if process.exitcode is None:
        process.kill()
        process.join()
    assert process.exitcode is not None
    return process.exitcode


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

    from orthobench.cli import main

    sys.argv = ["orthobench", *arguments]
    watch = _Lines(kill.line)
    if kill.line is not None or lines is not None:
        sys.settrace(watch.entered)
    try:
        main()
    finally:
        sys.settrace(None)
        if lines is not None:
            lines.write_text("\n".join(watch.stages))


def _die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _die_writing(number: int) -> None:
    """Kill this process half-way through the file of the n-th checkpoint."""
    opened, numbers = Path.open, itertools.count(1)

    def half(self: Path, *arguments, **options):
        stream = opened(self, *arguments, **options)
        if self.suffix == ".part" and next(numbers) == number:
            stream.write(b"PK\3\4" + bytes(3000))
            stream.flush()
            _die()
        return stream

    Path.open = half  # type: ignore[method-assign]


class _Lines:
    """A trace function that counts the watched lines, and kills the process before the last."""

    def __init__(self, last: int | None) -> None:
        self.last = last
        self.stages: list[str] = []

    def entered(self, frame: FrameType, event: str, argument: object):
        name = frame.f_code.co_filename
        return self.line if f"orthobench{os.sep}" in name and any(part in name for part in WATCHED) else None

    def line(self, frame: FrameType, event: str, argument: object):
        if event == "line":
            if len(self.stages) == self.last:
                _die()
            code = frame.f_code
            names = code.co_name, Path(code.co_filename).parent.name, Path(code.co_filename).name
            self.stages.append(next((STAGES[name] for name in names if name in STAGES), "training"))
        return self.line
