"""Code that Ray and SLURM share: which databases a cluster can use, and how runs are watched through the database.

A run that is lost starts again from its last checkpoint as long as it has progressed. A run that is lost repeatedly at
the same iteration counts as failed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from dataclasses import dataclass, field, fields

from orthobench.errors import UsageError
from orthobench.executors.job import Job, SinkFactory
from orthobench.store import MetricRow, Run, Status, Store, TraceRow
from orthobench.system.location import Location, Place
from orthobench.training.events import Evaluation, EventSink, RunProgress, RunStart

MAX_LOSSES = 2
"""The largest number of losses without progress in between; after one more, the run counts as failed."""
LOCK_GRACE = 120.0
"""Seconds for which a lost run may stay locked, because it takes time to notice that its machine has gone."""


def check_shared(database: Location, checkpoints: Place | None) -> None:
    """Check that several machines can share the database and the checkpoints.

    Raises:
        UsageError: the database is a file, or the user gave no folder or URL for the checkpoints.
    """
    if not database.is_server:
        raise UsageError(
            f"runs on several machines cannot share the database {database}: SQLite's locks and its log work on "
            "one machine alone; name a server with `db='postgresql://user@host/name'`"
        )
    if checkpoints is None:
        raise UsageError(
            "runs may resume on another machine, and need their checkpoints there: name a folder that all machines "
            "see, or a URL, with `checkpoints`"
        )


@dataclass
class WatchedJob:
    """A job on a cluster.

    Attributes:
        losses: how often it was lost since its last progress.
        lost_at: its iteration when it was last lost.
        shown_at: the iteration that was last displayed.
        sink: the sink of its display; None until the database shows the run as running.
    """

    job: Job
    losses: int = 0
    lost_at: int = -1
    shown_at: int = -1
    sink: EventSink | None = None
    display: ExitStack = field(default_factory=ExitStack)

    def may_resume_after_loss(self, iteration: int) -> bool:
        """Count a loss at this iteration, and tell whether the run may start again."""
        self.losses = self.losses + 1 if iteration <= self.lost_at else 1
        self.lost_at = iteration
        return self.losses <= MAX_LOSSES


def show(watched: Iterable[WatchedJob], store: Store, open_sink: SinkFactory) -> dict[str, Run]:
    """Send the stored state of each run to the sink of its job, and return the runs by key."""
    jobs = {entry.job.spec.key: entry for entry in watched}
    runs = {run.key: run for run in store.runs(keys=list(jobs))}
    for key, run in runs.items():
        entry = jobs[key]
        if run.iterations == entry.shown_at or (entry.sink is None and run.status != Status.RUNNING):
            continue
        if entry.sink is None:
            entry.sink = entry.display.enter_context(open_sink(entry.job))
            entry.sink.on_start(RunStart.of_run(run))
        entry.sink.on_iteration(run.iterations)
        if run.iterations > entry.shown_at and store.last_iteration(run.id) >= 0:
            entry.sink.on_evaluation(_newest_evaluation(store, run))
        entry.shown_at = run.iterations
    return runs


def _newest_evaluation(store: Store, run: Run) -> Evaluation:
    """Return the newest evaluation of a run in the database, with all its rows and vectors."""
    iteration = store.last_iteration(run.id)
    metrics = store.metrics([run.id], iteration=iteration)
    vectors = store.traces([run.id], iteration=iteration)
    return Evaluation(
        iteration,
        iteration // run.iterations_per_epoch,
        [MetricRow(row.split, row.name, row.epoch, row.iteration, row.value) for row in metrics],
        [TraceRow(row.name, row.epoch, row.iteration, list(row.values)) for row in vectors],
        run.final_value,
        RunProgress(**{column.name: getattr(run, column.name) for column in fields(RunProgress)}),
        judge="test" if run.spec["training"].get("judged_by", "test") == "test" else "valid",
    )
