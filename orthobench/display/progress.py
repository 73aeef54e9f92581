"""Display the progress of runs and downloads: live on a terminal or in a notebook, as plain lines elsewhere.

A live row fits on one line of the terminal. A wide terminal shows everything. Below `WIDE` columns the row has no
settings, loss and baseline, below `MEDIUM` columns no bar and no rate. Below `NARROW` columns it shows only the run and
its metric. Where the row is still too long, the name of the run is cut, and never a number.
"""

from __future__ import annotations

import io
import logging
import math
import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orthobench.display.console import Console
from orthobench.display.display import Display, JobsDisplay
from orthobench.errors import counted
from orthobench.executors.job import Ending, JobOutcome
from orthobench.training.events import Evaluation, EventSink, RunStart

if TYPE_CHECKING:
    from rich.progress import Progress as Bar
    from rich.progress import TaskID

    from orthobench.planning.sweep_runs import PlannedRun

_logger = logging.getLogger(__name__)

WIDE, MEDIUM, NARROW = 120, 76, 60
"""Widths of terminals, in columns."""
LEAST = ("rate", "baseline", "loss", "left")
"""The parts of a plain line that a terminal does without, the least important first."""
NOTEBOOK = 120
"""The width of a notebook's cell, in columns."""
RENEWED = 0.2
"""The least number of seconds between two versions of a notebook's display."""
CELL = '<pre style="white-space:pre;overflow-x:auto;line-height:normal">{code}</pre>'
"""The HTML of a notebook's display."""


def ipython() -> Any:
    """Return the IPython shell in which this process runs, or None. It is asked without importing IPython."""
    module = sys.modules.get("IPython")
    return None if module is None else module.get_ipython()


def is_notebook() -> bool:
    """Return whether output goes to cells of a notebook."""
    return getattr(ipython(), "kernel", None) is not None


def is_live() -> bool:
    """Return whether the display can renew its rows: in a notebook, or on a terminal that can move its cursor."""
    is_terminal = sys.stderr.isatty() and os.environ.get("TERM") not in ("dumb", "unknown")
    return is_terminal or is_notebook()


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
            self.row = add_row(self.bar, label, value="starting")

    def on_start(self, start: RunStart) -> None:
        self.run = start
        self.start_time = time.monotonic()
        if not self.live or start.preset == "quick":
            facts = [f"run {start.key}", f"{start.parameter_count} parameters", str(start.device)]
            facts += [f"preset {start.preset}"] if start.preset else []
            line = f"{self.label}: {', '.join(facts)}"
            if self.live:  # above the live table, because a small version may be the default
                self.bar.console.print(line, soft_wrap=True, highlight=False, markup=False)
            else:
                print(line, file=sys.stderr)

    def on_iteration(self, iteration: int) -> None:
        assert self.run is not None
        if not self.first_iteration:
            # Counted from here, because a resumed run does not begin at iteration 0.
            self.first_iteration = iteration
            self.start_time = time.monotonic()
        if self.live:
            epoch, rate = iteration / self.run.iterations_per_epoch, self._rate(iteration)
            of = f"{epoch:.1f}/{self.run.total_iterations / self.run.iterations_per_epoch:.3g}"
            texts: dict[str, Any] = {
                "position": f"epoch {epoch:.1f}  {rate:.1f} it/s",
                "epoch": of,
                "rate": f"{rate:.3g} it/s",
            }
            self.bar.update(self.row, total=self.run.total_iterations, completed=iteration, **texts)

    def on_evaluation(self, evaluation: Evaluation) -> None:
        assert self.run is not None
        iteration, metric, total = evaluation.iteration, self.run.metric, self.run.total_iterations
        loss = "" if evaluation.loss is None else f"loss {evaluation.loss:.4g}  "
        split = "" if evaluation.judge == "test" else "validation "
        value = f"{split}{metric} {evaluation.metrics_of(evaluation.judge).get(metric, float('nan')):.4g}"
        baseline = f"(baseline {self.run.baselines[metric]:.4g})"
        if self.live:
            self.on_iteration(iteration)  # because a worker tells only of some iterations, and seldom of the last
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
            is_timed = rate and not solved
            parts = {
                "epoch": f"{short_label(self.label)}: epoch {iteration / self.run.iterations_per_epoch:.2f}",
                "loss": f"  {loss}".rstrip(),
                "value": f"  {value}",
                "baseline": f" {baseline}",
                "solved": solved,
                "rate": f"  {rate:.1f} it/s" if is_timed else "",
                "left": f"  ETA {_clock((total - iteration) / rate)}" if is_timed else "",
            }
            print(_fitting(parts), file=sys.stderr)

    def on_final_metrics(self, done: int, total: int) -> None:
        if self.live:
            texts: dict[str, Any] = {
                "position": f"final metrics {done}/{total}",
                "epoch": f"final {done}/{total}",
                "rate": "",
            }
            self.bar.update(self.row, total=total, completed=done, **texts)
        elif done == total or time.monotonic() - self.printed_at > 10:
            self.printed_at = time.monotonic()
            print(f"{short_label(self.label)}: final metrics {done}/{total}", file=sys.stderr)

    def _rate(self, iteration: int) -> float:
        """Compute the iterations per second of this process."""
        spent = time.monotonic() - self.start_time
        return (iteration - self.first_iteration) / spent if spent > 0 and self.first_iteration else 0.0


def _fitting(parts: dict[str, str]) -> str:
    """Join the parts of a line; on a terminal without those of `LEAST` that do not fit into its width."""
    width = Console(stderr=True).width if sys.stderr.isatty() else math.inf
    for name in LEAST:
        if sum(map(len, parts.values())) > width:
            parts = {**parts, name: ""}
    return "".join(parts.values())


def _bar() -> Bar:
    """Create a live table with one row per run, and with columns that fit the terminal."""
    from rich.progress import BarColumn, ProgressColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar
    from rich.table import Column
    from rich.text import Text

    class Name(TextColumn):
        """A column that is cut where the row is too long: rich cuts columns that may wrap first."""

        def render(self, task: Any) -> Text:
            text = super().render(task)
            text.no_wrap, text.overflow = True, "ellipsis"
            return text

    def text(template: str) -> TextColumn:
        return TextColumn(template, markup=False, table_column=Column(no_wrap=True, overflow="ellipsis"))

    console = Console(stderr=True, width=NOTEBOOK if is_notebook() else None)
    fields = "{task.fields[position]}  {task.fields[result]} {task.fields[baseline]}"
    short = Name("{task.fields[short]}", markup=False, table_column=Column(overflow="ellipsis"))
    value = text("{task.fields[value]}")
    epoch, rate = text("{task.fields[epoch]}"), text("{task.fields[rate]}")
    columns: list[ProgressColumn]
    if console.width >= WIDE:
        columns = [text("{task.description}"), BarColumn(bar_width=24), text(fields), TimeRemainingColumn()]
    elif console.width >= MEDIUM:
        columns = [short, BarColumn(bar_width=8), epoch, rate, value, TimeRemainingColumn()]
    elif console.width >= NARROW:
        columns = [short, epoch, value, TimeRemainingColumn()]
    else:
        columns = [short, value]
    return (notebook_bar() if is_notebook() else Bar)(*columns, console=console)


def notebook_bar() -> type[Bar]:
    """Return the class of live tables for notebooks.

    rich's own needs ipywidgets. This one is the output of a cell, which IPython replaces by the newer one.
    """
    from rich.progress import Progress as Bar

    class NotebookBar(Bar):
        shown_at = -math.inf

        def start(self) -> None:
            from IPython.display import display

            self.cell = display(self, display_id=True)

        def update(self, *arguments: Any, **fields: Any) -> None:
            super().update(*arguments, **fields)
            if time.monotonic() - self.shown_at > RENEWED:
                self.renew()

        def renew(self) -> None:
            self.shown_at = time.monotonic()
            self.cell.update(self)

        stop = renew

        def _repr_mimebundle_(self, *_: Any, **__: Any) -> dict[str, str]:
            drawn = Console(file=io.StringIO(), width=NOTEBOOK, record=True, force_jupyter=False)
            drawn.print(self.get_renderable())
            text = drawn.export_text(clear=False)
            return {"text/plain": text, "text/html": drawn.export_html(inline_styles=True, code_format=CELL)}

    return NotebookBar


def add_row(bar: Bar, label: str, total: int | None = None, **fields: str) -> TaskID:
    """Add a row to a live table; `fields` are the initial texts of its columns."""
    texts: dict[str, Any] = dict.fromkeys(("position", "epoch", "rate", "result", "value", "baseline"), "") | fields
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

    with Console(stderr=True).status(escape(text)):
        yield


class JobLines(JobsDisplay):
    """A display of jobs that train in this process, one after another.

    Args:
        spell: rewrites a message for its reader.
    """

    def __init__(self, spell: Callable[[str], str]) -> None:
        self.spell = spell
        self.refusals: set[str] = set()

    @contextmanager
    def open_sink(self, label: str) -> Iterator[EventSink]:
        with Progress(label) as progress:
            yield progress

    def print_line(self, text: str) -> None:
        print(text, file=sys.stderr)

    def on_outcome(self, outcome: JobOutcome) -> None:
        label, cause = outcome.job.label, outcome.cause
        if outcome.ending in (Ending.FAILED, Ending.DIVERGED):
            self.print_line(f"{label} {outcome.ending}: {cause}")
            if outcome.traceback and _logger.isEnabledFor(logging.DEBUG):
                self.print_line(outcome.traceback.rstrip())
        elif outcome.ending == Ending.REFUSED:
            if cause not in self.refusals:  # a full disk affects every run, but is reported once
                self.print_line(f"{label} cannot be started: {self.spell(cause)}")
            self.refusals.add(cause)
        elif outcome.ending == Ending.PRUNED:
            self.print_line(f"{label} {cause}")
        elif outcome.ending == Ending.BUSY:
            self.print_line(f"{label} is left to another process: {cause}")


class QuietJobs(JobLines):
    """A display of jobs that says only which ones have no result."""

    @contextmanager
    def open_sink(self, label: str) -> Iterator[EventSink]:
        yield EventSink()


class SideBySide(LiveDisplay, JobLines):
    """A display of jobs that train at the same time; as a context manager it opens the live display.

    A terminal shows a row for all runs and a row for each running one, below the lines of the runs that have ended.
    """

    def __init__(self, runs: int, spell: Callable[[str], str] = str) -> None:
        super().__init__(spell)
        self.live = is_live()
        self.ended = 0
        if self.live:
            self.bar = _bar()
            self.all = add_row(self.bar, "all runs", runs, **self._ended_of(runs))
            self.runs = runs

    def print_line(self, text: str) -> None:
        """Print a line above the live display."""
        if self.live and not is_notebook():
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
            if not is_notebook():  # its table of results follows
                self.print_line(f"{label}: {fields['position']}  {fields['result']} {fields['baseline']}")
            self.ended += 1
            self.bar.update(self.all, completed=self.ended, **self._ended_of(self.runs))

    def _ended_of(self, runs: int) -> dict[str, Any]:
        """Return the texts for the row of all runs; a wide row shows the position, and others the value."""
        return dict.fromkeys(("position", "value"), f"{self.ended} of {runs} ended")


class ProgressDisplay(Display):
    """A display of the progress of a session on stderr, or in the cell of a notebook.

    Args:
        quiet: show no progress, only what went wrong.
        spell: rewrites a message for its reader.
    """

    def __init__(self, quiet: bool = False, spell: Callable[[str], str] = str) -> None:
        self.quiet = quiet
        self.spell = spell

    @contextmanager
    def open_jobs(self, count: int, in_this_process: bool) -> Iterator[JobsDisplay]:
        if self.quiet:
            yield QuietJobs(self.spell)
        elif in_this_process:
            yield JobLines(self.spell)
        else:
            with SideBySide(count, self.spell) as rows:
                yield rows

    def on_profile(self, run: PlannedRun) -> None:
        self.print_line(f"trying a few steps of {run.label}")

    def print_line(self, text: str) -> None:
        if not self.quiet:
            print(self.spell(text), file=sys.stderr)

    def on_budget_spent(self, not_started: int) -> None:
        verb = "is" if not_started == 1 else "are"
        print(f"the budget is spent: {counted(not_started, 'run')} {verb} left for another time", file=sys.stderr)

    def on_stop_request(self) -> None:
        print("stopping after this iteration; a second signal stops at once", file=sys.stderr)


def default_display() -> Display:
    """Return the display for a call that names none: of the progress inside IPython, of nothing elsewhere."""
    return Display() if ipython() is None else ProgressDisplay()


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
