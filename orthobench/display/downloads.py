"""The progress of downloads, and a line or spinner for what takes a while."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orthobench.display.console import Console
from orthobench.display.live import is_live

if TYPE_CHECKING:
    from rich.progress import TaskID


@contextmanager
def busy(text: str, shown: bool = True) -> Iterator[None]:
    """Show on stderr what the command does in the `with` block: with a spinner on a terminal, else with a line.

    Args:
        shown: False if the user wants no progress, or if the command can only end in an error.
    """
    if not shown:
        yield
        return
    if not is_live():
        print(text, file=sys.stderr)
        yield
        return
    from rich.markup import escape

    with Console(stderr=True).status(escape(text)):
        yield


class Downloads:
    """A display of downloads; as a context manager it opens the live display.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self.quiet = quiet
        self.live = is_live() and not quiet
        self.bar = Bar(*columns, console=Console(stderr=True), disable=not self.live)
        self.rows: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def report(self, name: str, done: int, total: int) -> None:
        """Show the progress of a file, in bytes."""
        if name not in self.rows:
            self.rows[name] = self.bar.add_task(name, total=total)
        self.bar.update(self.rows[name], completed=done)
        if not self.live and not self.quiet and done >= total:
            print(f"{name}: {done} bytes", file=sys.stderr)
