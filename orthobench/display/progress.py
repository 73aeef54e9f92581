"""Display the progress of runs: live on a terminal or in a notebook, as plain lines elsewhere."""

from __future__ import annotations

import logging
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from orthobench.display.console import Console
from orthobench.display.display import Display, JobsDisplay
from orthobench.display.live import LiveDisplay, add_row, ipython, is_live, is_notebook, live_table, short_label
from orthobench.errors import counted
from orthobench.executors.job import Ending, JobOutcome
from orthobench.training.events import Evaluation, EventSink, RunStart

if TYPE_CHECKING:
    from orthobench.planning.sweep_runs import PlannedRun

_logger = logging.getLogger(__name__)

LEAST = ("rate", "baseline", "loss", "left")
"""The parts of a plain line that a terminal does without, the least important first."""


class Progress(LiveDisplay, EventSink):
    """A sink that displays one run; as a context manager it opens the live display."""

    def __init__(self, label: str, live: bool | None = None) -> None:
        self.label = label
        self.live = is_live() if live is None else live
        self.run: RunStart | None = None
        self.start_time = self.printed_at = time.monotonic()
        self.first_iteration = 0
        if self.live:
            self.bar = live_table()
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


def _clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}"


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
            self.bar = live_table()
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
