"""A run as another process receives it, and the executors that train runs.

A `Job` holds the run's canonical form and the locations of its database, checkpoints and data. These mean the same in
another process and on another machine. An `Executor` trains many jobs: in this process, in worker processes, or
on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Protocol

import torch

from orthobench.errors import OrthobenchError, RunLockedError, traceback_text
from orthobench.executors.pruning import Pruned, PruningSink
from orthobench.isolation import isolated
from orthobench.options.arguments import Preset
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import RunOptions
from orthobench.planning.objective import Rule
from orthobench.plugins import Catalog
from orthobench.plugins.sources import Sources
from orthobench.spec.resolve import RunConfig, RunSpec, resolve_again
from orthobench.store import Run, Status, Store, open_store
from orthobench.system.location import Location
from orthobench.system.own_code import described
from orthobench.training.checkpoint import Checkpoints, checkpoint_root, checkpoints_at, lock
from orthobench.training.events import EventSink, RunStart
from orthobench.training.lifecycle import DEFAULTS, OutOfMemory, train
from orthobench.training.loop import Interrupted
from orthobench.training.recording import DatabaseSink


@dataclass(frozen=True)
class Job:
    """Everything that a process needs to train a run.

    Attributes:
        database: the absolute path of a file, or a URL.
        options: how the run trains.
        plugins: the user's plugin files with their text, so that another machine or a later edit does not change the
            run.
        threads: number of threads; None for the default of torch.
        rule: the rule by which a search prunes the run.
        config: the resolved run, for use in this process; pickling a job drops it.
    """

    spec: RunSpec
    label: str
    database: Location
    options: RunOptions = DEFAULTS
    plugins: tuple[Sources, ...] = ()
    threads: int | None = None
    rule: Rule | None = None
    preset: Preset = "paper"
    config: RunConfig | None = None

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the run."""
        return checkpoints_at(checkpoint_root(self.database, self.options.checkpoints), self.spec.key)

    def __getstate__(self) -> dict[str, Any]:
        # Without the resolved run, because its classes may come from a plugin's file,
        # and pickle finds classes only by import.
        return vars(self) | {"config": None}

    def resolve(self) -> RunConfig:
        """Return the resolved run.

        Raises:
            UsageError: the plugins of this process differ from the plugins with which the job was created.
        """
        if self.config is not None:
            return self.config
        catalog = Catalog(self.plugins)
        catalog.named(self.spec.model)  # as the user did in the process that made this job
        return resolve_again(catalog, self.spec, self.preset)


class Ending(StrEnum):
    """How a job ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"  # also a result
    FAILED = "failed"  # the database has the cause
    REFUSED = "refused"  # it could not start; the database has no record
    BUSY = "busy"  # another process trains the run
    PRUNED = "pruned"  # its search pruned it; the database records it as interrupted
    INTERRUPTED = "interrupted"  # it was asked to stop, and resumes from its checkpoint

    @property
    def is_result(self) -> bool:
        """Whether the run has a final result."""
        return self in (Ending.FINISHED, Ending.DIVERGED)


@dataclass(frozen=True)
class JobOutcome:
    """The ending of a job, and its cause in one line unless it is a result.

    Attributes:
        traceback: the traceback of an error in the run, without passwords; "" if it is not known.
    """

    job: Job
    ending: Ending
    cause: str = ""
    traceback: str = ""


SinkFactory = Callable[[Job], AbstractContextManager[EventSink]]
"""Opens the sink that displays a job while it runs."""


class Executor(Protocol):
    """An executor of jobs."""

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[JobOutcome]:
        """Train jobs, and yield the outcome of each job when it ends, in any order.

        A job that fails does not stop the others. When the user asks to stop, no further job starts, running jobs end
        as interrupted, and the iterator ends. A job that never started has no outcome.

        Args:
            may_start: called before each job; once it returns False, no further job starts.
        """
        ...


def train_job(
    job: Job, sink: EventSink, should_stop: Callable[[], bool] = lambda: False, store: Store | None = None
) -> Run:
    """Train a job in this process, as `orthobench.training.lifecycle.train` does.

    Args:
        store: the database of the job if it is already open; otherwise this function opens it.

    Raises:
        RunLockedError: another process trains this run.
        UsageError: the run cannot start.
        OutOfMemory: the memory is too small.
        Interrupted: `should_stop` returned True, or, as its subclass Pruned, the rule of the job ended the run.
    """
    with isolated(job.threads), use_data_folder(job.options.data_folder):
        config = job.resolve()
        opened = nullcontext(store) if store else open_store(job.database, create=True, stop_waiting=should_stop)
        with opened as database:
            pruning = None if job.rule is None else PruningSink(job.rule, database, job.spec.key)
            if pruning is not None and pruning.pruned_at is not None:  # killed between an evaluation and its verdict
                with lock(database, job.checkpoints):
                    pruning.raise_if_pruned()
            try:
                return train(
                    config,
                    database,
                    job.options,
                    [sink] if pruning is None else [sink, pruning],
                    lambda: (pruning is not None and pruning.pruned_at is not None) or should_stop(),
                )
            except Interrupted:
                if pruning is not None:
                    pruning.raise_if_pruned()
                raise


def attempt(
    job: Job, sink: EventSink, should_stop: Callable[[], bool] = lambda: False, store: Store | None = None
) -> JobOutcome:
    """Train a job in this process and return its outcome; of all exceptions, only KeyboardInterrupt is not caught."""
    try:
        run = train_job(job, sink, should_stop, store)
    except Pruned as reason:
        return JobOutcome(job, Ending.PRUNED, str(reason))
    except Interrupted:
        return JobOutcome(job, Ending.INTERRUPTED)
    except RunLockedError as error:
        return JobOutcome(job, Ending.BUSY, str(error))
    except OrthobenchError as error:
        return JobOutcome(job, Ending.REFUSED, str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as error:  # the code of a layer may exit, or raise any error
        cause = str(error) if isinstance(error, OutOfMemory) else described(error)
        with suppress(Exception), open_store(job.database) as database:  # perhaps it is the database that failed
            record_failure(database, job, cause)
        return JobOutcome(job, Ending.FAILED, cause, traceback_text())
    if run.status == Status.DIVERGED:
        return JobOutcome(job, Ending.DIVERGED, run.message or "")
    return JobOutcome(job, Ending.FINISHED)


def record_failure(store: Store, job: Job, cause: str) -> None:
    """Record that a job failed. A run without a record gets one, which lacks the sizes of its model and data.

    Nothing is recorded if another process trains the run by now, or if an installed plugin has changed.
    """
    with suppress(OrthobenchError), lock(store, job.checkpoints):
        run = store.find(job.spec.key)
        if run is None:
            config = job.resolve()
            database = DatabaseSink(store, torch.device("cpu"), config.sources)
            database.on_start(RunStart.of(config, job.options.device))
            run = database.run
            assert run is not None
        if not Status(run.status).is_final:  # a failure after the end does not change the result
            store.update(run.id, {"status": Status.FAILED, "message": cause})
