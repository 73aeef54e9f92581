"""One run as a fresh process is told of it, and what carries runs out.

A `Job` holds only what can be pickled and means the same on another process or machine: the run's canonical form, and
where its database, checkpoints and data are. `train_job` makes a run of it again. An `Executor` carries out many: in
this process, in processes of their own, or on a cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Protocol

import torch

from orthobench.checkpoint import Busy, CheckpointFolder
from orthobench.data import use_data_folder
from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.spec import RunSpec, resolve_again
from orthobench.store import Run, Status, open_store
from orthobench.sweep.pruning import Median, Watched
from orthobench.train import BackendName, DeviceName, Interrupted, Observer, OnDivergence, pick_device, train


@dataclass(frozen=True)
class Job:
    """Everything that one run needs.

    database: a file's absolute path or a URL. checkpoints: the folder of all runs' checkpoints. plugins: files with
    tasks, models and probes of the user's, which have to be there unchanged. data_folder: None for the usual one.
    threads: None for as many as torch takes. rule: by what a search cuts the run short.
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
    rule: Median | None = None


class Ending(StrEnum):
    """How a job ended."""

    FINISHED = "finished"
    DIVERGED = "diverged"  # a result as well
    FAILED = "failed"  # the database has the cause
    REFUSED = "refused"  # it could not be started, which is the user's to mend; the database does not know of it
    BUSY = "busy"  # another process is at this run, which is no failure
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

    def run(self, jobs: Sequence[Job]) -> Iterator[Outcome]:
        """Every job's outcome, as they end, in any order.

        A job that fails, in whatever way, ends no other. After a request to stop, no further job is started, those
        under way end as interrupted (with their outcome), and the iterator ends: jobs not started have no outcome.
        """
        ...


def train_job(job: Job, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Run:
    """Carry out a job in this process, as `orthobench.train.train` does.

    Raises:
        Busy: another process is at this run.
        UsageError: the run cannot be started.
        Interrupted: `should_stop` said so, or the job's rule did: then with the message that the run was left with.
    """
    if job.threads is not None:
        torch.set_num_threads(job.threads)
    with use_data_folder(None if job.data_folder is None else Path(job.data_folder)):
        resolved = resolve_again(Catalog(Path(file) for file in job.plugins), job.spec)
        folder = CheckpointFolder(Path(job.checkpoints), job.spec.key)
        with open_store(job.database, create=True) as store:
            watched = Watched(observer, job.rule, store)
            before = store.find(job.spec.key)
            if before is not None and not Status(before.status).is_final:
                with folder.lock():  # it may have been killed after a test, and before the rule was heard
                    watched.judge(before)
                    if message := watched.record(before):
                        raise Interrupted(message)
            try:
                return train(
                    resolved,
                    store,
                    folder,
                    pick_device(job.device),
                    watched,
                    lambda: watched.pruned_at is not None or should_stop(),
                    job.checkpoint_every,
                    job.backend,
                    job.on_divergence,
                )
            except Interrupted:
                raise Interrupted(watched.record(watched.run)) from None


def attempt(job: Job, observer: Observer, should_stop: Callable[[], bool] = lambda: False) -> Outcome:
    """Carry out a job in this process; whatever it raises is an outcome (but KeyboardInterrupt and the like)."""
    try:
        run = train_job(job, observer, should_stop)
    except Interrupted as reason:
        return Outcome(job, Ending.INTERRUPTED, str(reason))
    except Busy as error:
        return Outcome(job, Ending.BUSY, str(error))
    except UsageError as error:
        return Outcome(job, Ending.REFUSED, str(error))
    except Exception as error:
        return Outcome(job, Ending.FAILED, f"{type(error).__name__}: {error}".splitlines()[0])
    if run.status == Status.DIVERGED:
        return Outcome(job, Ending.DIVERGED, run.message or "")
    return Outcome(job, Ending.FINISHED)
