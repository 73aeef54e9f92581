"""One run as a fresh process is told of it, and what carries runs out.

A `Job` holds only what can be pickled and means the same on another process or machine: the run's canonical form, and
where its database, checkpoints and data are. `train_job` makes a run of it again. An `Executor` carries out many: in
this process, in processes of their own, or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import torch

from orthobench import environment
from orthobench.data import use_data_folder
from orthobench.errors import OrthobenchError, RunLockedError
from orthobench.execution.pruning import Pruned, Watched
from orthobench.plugins import Catalog
from orthobench.spec import RunSpec, resolve_again
from orthobench.store import Run, Status, Store, open_store
from orthobench.sweep.objective import Median
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.events import Observer
from orthobench.training.lifecycle import BackendName, DeviceName, OutOfMemory, pick_device, train
from orthobench.training.locks import lock
from orthobench.training.trainer import Interrupted, OnDivergence


@dataclass(frozen=True)
class Job:
    """Everything that one run needs.

    database: a file's absolute path or a URL. checkpoints: the folder or URL of all runs' checkpoints. plugins: files
    with tasks, models and probes of the user's, which have to be there unchanged. data_folder: None for the usual one.
    threads: None for as many as torch takes.
    rule: by what a search cuts the run short.
    """

    spec: RunSpec
    label: str
    database: str
    checkpoints: str
    plugins: tuple[str, ...] = ()
    data_folder: str | None = None
    device: DeviceName = "cpu"
    backend: BackendName = "auto"
    threads: int | None = None
    checkpoint_every: float = 30.0
    on_divergence: OnDivergence = "stop"
    tags: tuple[str, ...] = ()
    rule: Median | None = None


class Ending(StrEnum):
    """How a job ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"  # a result as well
    FAILED = "failed"  # the database has the cause
    REFUSED = "refused"  # it could not be started, which is the user's to mend; the database does not know of it
    BUSY = "busy"  # another process is at this run, which is no failure
    PRUNED = "pruned"  # its search cut it short; it is left as an interrupted one
    INTERRUPTED = "interrupted"  # it was asked to stop, and goes on from its checkpoint when asked for again

    @property
    def is_result(self) -> bool:
        return self in (Ending.FINISHED, Ending.DIVERGED)


@dataclass(frozen=True)
class Outcome:
    """What came of a job, and for endings that are no result, why: one line."""

    job: Job
    ending: Ending
    cause: str = ""


Watch = Callable[[Job], AbstractContextManager[Observer]]
"""Gives a job's observer, for as long as the job runs: how an executor tells the display how the runs go."""


class Executor(Protocol):
    """Carries out jobs."""

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        """Every job's outcome, as they end, in any order.

        `may_start` is asked before each job: once it says no, those not started have no outcome.

        A job that fails, in whatever way, ends no other. After a request to stop, no further job is started, those
        under way end as interrupted (with their outcome), and the iterator ends: jobs not started have no outcome.
        """
        ...


def train_job(job: Job, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Run:
    """Carry out a job in this process, as `orthobench.training.lifecycle.train` does.

    Raises:
        RunLockedError: another process is at this run.
        UsageError: the run cannot be started.
        OutOfMemory: on the accelerator.
        Interrupted: `should_stop` said so, or, as Pruned, the job's rule.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    with use_data_folder(None if job.data_folder is None else Path(job.data_folder)):
        config = resolve_again(Catalog(Path(file) for file in job.plugins), job.spec)
        folder = checkpoints_at(job.checkpoints, job.spec.key)
        with open_store(job.database, create=True) as store:
            watched = Watched(observer, job.rule, store)
            before = store.find(job.spec.key)
            if job.rule is not None and before is not None and not Status(before.status).is_final:
                with lock(store, folder):  # killed after a test, before what the rule says of it was kept
                    watched.judge(before)
                    watched.leave_word()
            try:
                return train(
                    config,
                    store,
                    folder,
                    pick_device(job.device),
                    watched,
                    lambda: watched.pruned_at is not None or should_stop(),
                    job.checkpoint_every,
                    job.backend,
                    job.on_divergence,
                    job.tags,
                )
            except Interrupted:
                watched.leave_word()
                raise


def attempt(job: Job, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Carry out a job in this process; what it raises is an outcome, but for KeyboardInterrupt and the like."""
    try:
        run = train_job(job, observer, should_stop)
    except Pruned as reason:
        return Outcome(job, Ending.PRUNED, str(reason))
    except Interrupted:
        return Outcome(job, Ending.INTERRUPTED)
    except RunLockedError as error:
        return Outcome(job, Ending.BUSY, str(error))
    except OrthobenchError as error:
        return Outcome(job, Ending.REFUSED, str(error))
    except Exception as error:
        cause = str(error) if isinstance(error, OutOfMemory) else f"{type(error).__name__}: {error}".splitlines()[0]
        with suppress(Exception), open_store(job.database) as store:  # the database may be what failed
            record_failure(store, job, cause)
        return Outcome(job, Ending.FAILED, cause)
    if run.status == Status.DIVERGED:
        return Outcome(job, Ending.DIVERGED, run.message or "")
    return Outcome(job, Ending.FINISHED)


def record_failure(store: Store, job: Job, cause: str) -> None:
    """Keep in the database that a job failed, and why; a run that had not yet been entered is, with what is known.

    Nothing is kept where another process is at the run by now, or the plugin's file is another.
    """
    with suppress(OrthobenchError), lock(store, checkpoints_at(job.checkpoints, job.spec.key)):
        run = store.find(job.spec.key) or _enter(store, job)
        if not Status(run.status).is_final:  # what failed after the end takes no result away
            store.update(run.id, {"status": Status.FAILED, "message": cause})


def _enter(store: Store, job: Job) -> Run:
    """A record of a run that did not come as far as to make one: without parameters, iterations and baselines."""
    spec = job.spec
    config = resolve_again(Catalog(Path(file) for file in job.plugins), spec)
    facts = environment.describe(torch.device("cpu"))
    return store.start(
        spec.record()
        | {
            "device": job.device,
            "backend": None,
            "parameter_count": 0,
            "metric": config.task_class.metric,
            "goal": config.task_class.goal,
            "baselines": {},
            "total_iterations": 0,
            "iterations_per_epoch": 1,
        },
        environment.digest(facts),
        facts,
    )


class InThisProcess:
    """An executor that trains one run after the other, here."""

    def __init__(self, watch: Watch, should_stop: Callable[[], bool]) -> None:
        self.watch, self.should_stop = watch, should_stop

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        for job in jobs:
            if self.should_stop() or not may_start():
                return
            with self.watch(job) as observer:
                outcome = attempt(job, observer, self.should_stop)
            yield outcome
