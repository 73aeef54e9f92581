"""The display of a session, which receives events while runs are planned and trained. The command line has one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import TYPE_CHECKING

from orthobench.training.events import EventSink

if TYPE_CHECKING:
    from orthobench.executors.job import JobOutcome
    from orthobench.planning.match import MatchedSize
    from orthobench.planning.search import Trial, Tuning, TuningResult
    from orthobench.planning.sweep_plan import SweepPlan
    from orthobench.planning.sweep_runs import PlannedRun


class JobsDisplay:
    """A display of jobs. This base class ignores all events; subclasses override the methods that they need."""

    @contextmanager
    def open_sink(self, label: str) -> Iterator[EventSink]:
        """Open the sink of a run's events for as long as the run trains."""
        yield EventSink()

    def print_line(self, text: str) -> None:
        """Receive a line about a job, for example a line that its process printed."""

    def on_outcome(self, outcome: JobOutcome) -> None:
        """Receive the outcome of a job."""


class Display:
    """A display of a session. This base class ignores all events; subclasses override the methods that they need."""

    def open_jobs(self, count: int, in_this_process: bool) -> AbstractContextManager[JobsDisplay]:
        """Open a display for `count` jobs."""
        return nullcontext(JobsDisplay())

    def on_sizes(self, sizes: Sequence[MatchedSize]) -> None:
        """Receive the hidden sizes that were chosen for equal parameter counts, before the plan."""

    def on_plan(self, plan: SweepPlan) -> None:
        """Receive the plan of a sweep, before its runs train."""

    def on_profile(self, run: PlannedRun) -> None:
        """Receive the run that is profiled next."""

    def on_search(self, tuning: Tuning, trials: Sequence[Trial], plan: SweepPlan | None) -> None:
        """Receive a search and its trials so far, before further trials train; in a dry run, also their plan."""

    def on_search_end(self, result: TuningResult) -> None:
        """Receive all trials of a search after the last one has ended."""

    def print_line(self, text: str) -> None:
        """Receive a line about the progress of a measurement."""

    def on_budget_spent(self, not_started: int) -> None:
        """Receive the number of jobs that did not start within the budget."""

    def on_stop_request(self) -> None:
        """Receive the news that the user asked to stop."""
