"""What is seen of a run while it trains, and of a download: a live display on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Self

from orthobench.store import Run
from orthobench.training.events import Point

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from orthobench.execution.job import Job


class Progress:
    """An observer of `train`; as a context it holds the live display."""

    def __init__(self, label: str, live: bool | None = None) -> None:
        self.label = label
        self.live = sys.stderr.isatty() if live is None else live
        self.run: Run | None = None
        self.begun = self.spoke = time.monotonic()
        self.begun_at = 0
        if self.live:
            self.bar = _bar()
            self.row = self.bar.add_task(label, total=None, where="", found="")

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live:
            self.bar.stop()

    def started(self, run: Run) -> None:
        self.run = run
        self.begun = time.monotonic()
        if not self.live:
            print(f"{self.label}: run {run.key}, {run.parameter_count} parameters, {run.device}", file=sys.stderr)

    def iterated(self, iteration: int) -> None:
        assert self.run is not None
        if not self.begun_at:
            self.begun_at = iteration
            self.begun = time.monotonic()
        if self.live:
            where = f"epoch {iteration / self.run.iterations_per_epoch:.1f}  {self._rate(iteration):.1f} it/s"
            self.bar.update(self.row, total=self.run.total_iterations, completed=iteration, where=where)

    def tested(self, point: Point) -> None:
        assert self.run is not None
        metric, total = self.run.metric, self.run.total_iterations
        loss = "" if point.loss is None else f"loss {point.loss:.4g}  "
        found = f"{loss}{metric} {point.metrics[metric]:.4g} (baseline {self.run.baselines[metric]:.4g})"
        if self.live:
            self.bar.update(self.row, total=total, completed=point.iteration, found=found)
            return
        now = time.monotonic()
        epoch_ends = point.iteration % self.run.iterations_per_epoch == 0 or point.iteration == total
        if epoch_ends or now - self.spoke > 10:
            self.spoke = now
            rate = self._rate(point.iteration)
            left = f"  {rate:.1f} it/s  ETA {_clock((total - point.iteration) / rate)}" if rate else ""
            epoch = f"epoch {point.iteration / self.run.iterations_per_epoch:.2f}"
            print(f"{self.label}: {epoch}  {found}{left}", file=sys.stderr)

    def concluding(self, done: int, total: int) -> None:
        if self.live:
            self.bar.update(self.row, total=total, completed=done, where=f"last measurements {done}/{total}")
        elif done == total or time.monotonic() - self.spoke > 10:
            self.spoke = time.monotonic()
            print(f"{self.label}: last measurements {done}/{total}", file=sys.stderr)

    def _rate(self, iteration: int) -> float:
        """Iterations a second since this process took the run up."""
        spent = time.monotonic() - self.begun
        return (iteration - self.begun_at) / spent if spent > 0 and self.begun_at else 0.0


def _bar() -> Bar:
    """A live table, a row a run."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[where]}  {task.fields[found]}", markup=False),
        TimeRemainingColumn(),
    )
    return Bar(*columns, console=Console(stderr=True))


class SideBySide:
    """Shows runs that are made at once; as a context it holds the live display.

    A terminal has a row for all of them and one for each that is under way, below the lines of those that have ended.
    """

    def __init__(self, runs: int) -> None:
        self.live = sys.stderr.isatty()
        self.ended = 0
        if self.live:
            self.bar = _bar()
            self.all = self.bar.add_task("all runs", total=runs, where=f"0 of {runs} ended", found="")
            self.runs = runs

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live:
            self.bar.stop()

    def say(self, text: str) -> None:
        """Print a line that stays."""
        if self.live:
            self.bar.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=sys.stderr)

    @contextmanager
    def watch(self, job: Job) -> Iterator[Progress]:
        """The display of one run."""
        progress = Progress(job.label, live=False)
        if not self.live:
            yield progress
            return
        progress.live, progress.bar = True, self.bar
        progress.row = self.bar.add_task(job.label, total=None, where="starting", found="")
        try:
            yield progress
        finally:
            stood = next(row.fields for row in self.bar.tasks if row.id == progress.row)
            self.bar.remove_task(progress.row)
            self.say(f"{job.label}: {stood['where']}  {stood['found']}")
            self.ended += 1
            self.bar.update(self.all, completed=self.ended, where=f"{self.ended} of {self.runs} ended")


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


class Downloads:
    """Shows how downloads go; as a context it holds the live display."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=24),
            DownloadColumn(),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
        )
        self.live = sys.stderr.isatty()
        self.bar = Bar(*columns, console=Console(stderr=True), disable=not self.live)
        self.rows: dict[str, TaskID] = {}

    def __enter__(self) -> Self:
        self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.bar.stop()

    def report(self, name: str, done: int, total: int) -> None:
        """Show that so many of a file's bytes are here."""
        if name not in self.rows:
            self.rows[name] = self.bar.add_task(name, total=total)
        self.bar.update(self.rows[name], completed=done)
        if not self.live and done >= total:
            print(f"{name}: {done} bytes", file=sys.stderr)
