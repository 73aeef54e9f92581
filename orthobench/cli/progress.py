"""Display the progress of runs and downloads: live on a terminal, as plain lines elsewhere.

A live row fits on one line of the terminal. A wide terminal shows everything, below `WIDE` columns the row has neither
bar nor settings, and below `MEDIUM` columns it shows only the run and its metric.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orthobench.training.events import Evaluation, EventSink, RunStart

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

WIDE, MEDIUM = 120, 60
"""Widths of terminals, in columns."""


def is_live() -> bool:
    """Tell whether stderr is a terminal that can move its cursor."""
    return sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")


def short_label(label: str) -> str:
    """Return the label of a run without its settings."""
    return " ".join(word for word in label.split() if "=" not in word)


class LiveDisplay:
    """A context manager with the rows of a live display.

    Attributes:
        live: whether the display has rows; otherwise lines are printed, and there is no `bar`.
    """

    live: bool
    bar: Bar

    def __enter__(self) -> Self:
        if self.live:
            self.bar.start()
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        if self.live:
            self.bar.stop()


class Progress(LiveDisplay, EventSink):
    """A sink that displays one run; as a context manager it opens the live display."""

    def __init__(self, label: str, live: bool | None = None) -> None:
        self.label = label
        self.live = is_live() if live is None else live
        self.run: RunStart | None = None
        self.start_time = self.printed_at = time.monotonic()
        self.first_iteration = 0
        if self.live:
            self.bar = _bar()
            self.row = add_row(self.bar, label)

    def on_start(self, start: RunStart) -> None:
        self.run = start
        self.start_time = time.monotonic()
        if not self.live:
            print(f"{self.label}: run {start.key}, {start.parameter_count} parameters, {start.device}", file=sys.stderr)

    def on_iteration(self, iteration: int) -> None:
        assert self.run is not None
        if not self.first_iteration:
            self.first_iteration = iteration
            self.start_time = time.monotonic()
        if self.live:
            position = f"epoch {iteration / self.run.iterations_per_epoch:.1f}  {self._rate(iteration):.1f} it/s"
            self.bar.update(self.row, total=self.run.total_iterations, completed=iteration, position=position)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        assert self.run is not None
        iteration, metric, total = evaluation.iteration, self.run.metric, self.run.total_iterations
        loss = "" if evaluation.loss is None else f"loss {evaluation.loss:.4g}  "
        value = f"{metric} {evaluation.metrics.get(metric, float('nan')):.4g}"
        baseline = f"(baseline {self.run.baselines[metric]:.4g})"
        if self.live:
            fields: dict[str, Any] = {"result": f"{loss}{value}", "value": value, "baseline": baseline}
            total = iteration if evaluation.solved else total
            self.bar.update(self.row, total=total, completed=iteration, **fields)
            return
        now = time.monotonic()
        solved = f"  solved at iteration {iteration}" if evaluation.solved else ""
        epoch_ends = iteration % self.run.iterations_per_epoch == 0 or iteration == total or solved
        if epoch_ends or now - self.printed_at > 10:
            self.printed_at = now
            rate = self._rate(iteration)
            left = f"  {rate:.1f} it/s  ETA {_clock((total - iteration) / rate)}" if rate and not solved else ""
            epoch = f"epoch {iteration / self.run.iterations_per_epoch:.2f}"
            print(f"{short_label(self.label)}: {epoch}  {loss}{value} {baseline}{solved}{left}", file=sys.stderr)

    def on_final_metrics(self, done: int, total: int) -> None:
        if self.live:
            self.bar.update(self.row, total=total, completed=done, position=f"final metrics {done}/{total}")
        elif done == total or time.monotonic() - self.printed_at > 10:
            self.printed_at = time.monotonic()
            print(f"{short_label(self.label)}: final metrics {done}/{total}", file=sys.stderr)

    def _rate(self, iteration: int) -> float:
        """Compute the iterations per second of this process."""
        spent = time.monotonic() - self.start_time
        return (iteration - self.first_iteration) / spent if spent > 0 and self.first_iteration else 0.0


def _bar() -> Bar:
    """Create a live table with one row per run, and with columns that fit the terminal."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column

    from orthobench.cli.console import Console

    def text(template: str) -> TextColumn:
        return TextColumn(template, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))

    console = Console(stderr=True)
    fields = "{task.fields[position]}  {task.fields[result]} {task.fields[baseline]}"
    columns: list[ProgressColumn]
    if console.width >= WIDE:
        columns = [text("{task.description}"), BarColumn(bar_width=24), text(fields), TimeRemainingColumn()]
    elif console.width >= MEDIUM:
        columns = [text("{task.fields[short]}"), text("{task.fields[result]}"), TimeRemainingColumn()]
    else:
        columns = [text("{task.fields[short]}"), text("{task.fields[value]}")]
    return Bar(*columns, console=console)


def add_row(bar: Bar, label: str, total: int | None = None, **fields: str) -> TaskID:
    """Add a row to a live table; `fields` are the initial texts of its columns."""
    texts: dict[str, Any] = dict.fromkeys(("position", "result", "value", "baseline"), "") | fields
    return bar.add_task(label, total=total, short=short_label(label), **texts)


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

    from orthobench.cli.console import Console

    with Console(stderr=True).status(escape(text)):
        yield


class SideBySide(LiveDisplay):
    """A display of runs that train at the same time; as a context manager it opens the live display.

    A terminal shows a row for all runs and a row for each running one, below the lines of the runs that have ended.
    """

    def __init__(self, runs: int) -> None:
        self.live = is_live()
        self.ended = 0
        if self.live:
            self.bar = _bar()
            self.all = add_row(self.bar, "all runs", runs, **self._ended_of(runs))
            self.runs = runs

    def print_line(self, text: str) -> None:
        """Print a line above the live display."""
        if self.live:
            self.bar.console.print(text)
        else:
            print(text, file=sys.stderr)

    @contextmanager
    def open_sink(self, label: str) -> Iterator[Progress]:
        """Display a run while it trains."""
        progress = Progress(label, live=False)
        if not self.live:
            yield progress
            return
        progress.live, progress.bar = True, self.bar
        progress.row = add_row(self.bar, label, position="starting", value="starting")
        try:
            yield progress
        finally:
            fields = next(row.fields for row in self.bar.tasks if row.id == progress.row)
            self.bar.remove_task(progress.row)
            self.print_line(f"{label}: {fields['position']}  {fields['result']} {fields['baseline']}")
            self.ended += 1
            self.bar.update(self.all, completed=self.ended, **self._ended_of(self.runs))

    def _ended_of(self, runs: int) -> dict[str, Any]:
        """Return the texts for the row of all runs; only a wide row shows the position."""
        text = f"{self.ended} of {runs} ended"
        is_wide = self.bar.console.width >= WIDE
        return {"position" if is_wide else "result": text, "value": text}


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


class Downloads:
    """A display of downloads; as a context manager it opens the live display.

    Args:
        quiet: show nothing.
    """

    def __init__(self, quiet: bool = False) -> None:
        from rich.progress import BarColumn, DownloadColumn, TextColumn, TimeRemainingColumn, TransferSpeedColumn
        from rich.progress import Progress as Bar

        from orthobench.cli.console import Console

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
