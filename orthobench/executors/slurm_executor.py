"""Submit runs to a SLURM cluster, watch them in the database, and resubmit runs that a task leaves unfinished.

A task may end before its runs do, because of its time limit, a preemption, or the loss of its node.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.executors.cluster import WatchedJob, show
from orthobench.executors.job import Ending, Job, JobOutcome, SinkFactory, record_failure
from orthobench.executors.slurm import SlurmCluster
from orthobench.store import Run, Status, Store

POLL_SECONDS = 1.0
"""Time between two checks of the database and of the results of tasks."""
QUEUE_SECONDS = 10.0
"""Time between two checks of SLURM's queue, which all users share."""
RESULT_GRACE = 15.0
"""Seconds to wait for the result of a task that has left the queue, because a shared folder may show it late."""
STOP_SECONDS = 120.0
"""Seconds that cancelled tasks get to write their checkpoints and leave the queue."""


@dataclass
class _Task:
    """A group that was submitted, and the time since which its result is overdue."""

    task: Any
    keys: list[str]
    gone_at: float | None = None


@dataclass
class SlurmExecutor:
    """An executor on a SLURM cluster.

    Attributes:
        seconds: the estimated time of each run by key.
        print_line: receives a line about each submission, loss and cancellation.
    """

    cluster: SlurmCluster
    store: Store
    seconds: Mapping[str, float | None]
    open_sink: SinkFactory
    should_stop: Callable[[], bool]
    print_line: Callable[[str], None]

    def __post_init__(self) -> None:
        # A file, because the tasks run on other machines and have only the shared folder in common with this one.
        self.no_more = self.cluster.folder / "spent"
        self.open: dict[str, WatchedJob] = {}
        self.tasks: list[_Task] = []
        self.stopping_since: float | None = None
        self.is_over = False

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[JobOutcome]:
        """Train jobs and yield their outcomes. Closing the iterator early cancels the tasks."""
        if not jobs or self.should_stop() or not may_start():
            return
        self.open = {job.spec.key: WatchedJob(job) for job in jobs}
        looked_at = time.monotonic()
        try:
            self._submit(list(self.open.values()))
            while self.tasks:
                time.sleep(POLL_SECONDS)
                self._stop_if_asked(may_start)
                runs = show(self.open.values(), self.store, self.open_sink)
                yield from self._finished(runs)
                is_stopping = self.stopping_since is not None
                if time.monotonic() - looked_at >= (POLL_SECONDS if is_stopping or self.is_over else QUEUE_SECONDS):
                    looked_at = time.monotonic()
                    self._note_gone()
                again: list[WatchedJob] = []
                for task in [task for task in self.tasks if self._has_ended(task)]:
                    self.tasks.remove(task)
                    outcomes, lost = self._outcomes(task)
                    yield from outcomes
                    again += lost
                if again:
                    self._submit(again)
        finally:
            self.cluster.cancel([task.task for task in self.tasks])
            self.no_more.unlink(missing_ok=True)
            for watched in self.open.values():
                watched.display.close()

    def _submit(self, watched: Sequence[WatchedJob]) -> None:
        jobs = [entry.job for entry in watched]
        groups = self.cluster.groups(jobs, self.seconds)
        longest = max(sum(self.seconds.get(job.spec.key) or 0.0 for job in group) for group in groups)
        resumed = frozenset(entry.job.spec.key for entry in watched if entry.losses)
        tasks = self.cluster.submit(groups, resumed, self.no_more, longest)
        self.tasks += [_Task(task, [job.spec.key for job in group]) for task, group in zip(tasks, groups, strict=True)]
        numbers = sorted({task.job_id.partition("_")[0] for task in tasks})
        where = self.cluster.folder
        self.print_line(f"SLURM job {', '.join(numbers)}: {len(jobs)} run(s) in {len(groups)} task(s), logs in {where}")

    def _stop_if_asked(self, may_start: Callable[[], bool]) -> None:
        if self.stopping_since is None and self.should_stop():
            self.stopping_since = time.monotonic()
            self.print_line("the SLURM jobs are cancelled: runs in training write their checkpoints and stop")
            self.cluster.cancel([task.task for task in self.tasks])
        if not self.is_over and not may_start():
            self.is_over = True
            self.no_more.touch()
            self.cluster.cancel([task.task for task in self.tasks], pending_only=True)

    def _finished(self, runs: Mapping[str, Run]) -> Iterator[JobOutcome]:
        """Yield the outcomes of runs that have ended while other runs of their task may still train."""
        for key, run in runs.items():
            if self.open[key].sink is not None and Status(run.status).is_final:
                yield self._close(key, Ending(run.status), run.message or "")

    def _note_gone(self) -> None:
        active = self.cluster.active([task.task for task in self.tasks])
        if active is None:  # SLURM does not answer
            return
        for task in self.tasks:
            if task.task.job_id in active:
                task.gone_at = None
            elif task.gone_at is None:
                task.gone_at = time.monotonic()

    def _has_ended(self, task: _Task) -> bool:
        if task.task.paths.result_pickle.exists():
            # SLURM names the cause of an early end, such as a cancellation, only after the last process has ended.
            is_early = self.stopping_since is None and not self.is_over and not self.open.keys().isdisjoint(task.keys)
            return not is_early or self.cluster.state(task.task) != "COMPLETING"
        now = time.monotonic()
        if self.stopping_since is not None and now - self.stopping_since > STOP_SECONDS:
            return True
        grace = 0.0 if self.stopping_since is not None or self.is_over else RESULT_GRACE
        return task.gone_at is not None and now - task.gone_at >= grace

    def _outcomes(self, task: _Task) -> tuple[list[JobOutcome], list[WatchedJob]]:
        """Return the outcomes of a task that has ended, and the jobs to resubmit."""
        reported, cause = self.cluster.end(task.task)
        endings = {key: (Ending(ending), reason) for key, ending, reason in reported}
        outcomes = [
            self._close(key, *endings[key])
            for key in task.keys
            if key in self.open and key in endings and endings[key][0] != Ending.INTERRUPTED
        ]
        left = [key for key in task.keys if key in self.open]
        if not left:
            return outcomes, []
        if self.stopping_since is not None or self.is_over:
            started = [key for key in left if key in endings or self.open[key].sink is not None]
            outcomes += [self._close(key, Ending.INTERRUPTED) for key in started]
            for key in set(left) - set(started):
                self.open.pop(key)
            return outcomes, []
        state = self.cluster.state(task.task)
        if state == "CANCELLED":  # by somebody else
            self.print_line(f"SLURM job {task.task.job_id} was cancelled from outside")
            return outcomes + [self._close(key, Ending.INTERRUPTED) for key in left], []
        cause = cause or f"SLURM job {task.task.job_id} ended early ({state})"
        again = []
        runs = {run.key: run for run in self.store.runs(keys=left)}
        has_progress = len(left) < len(task.keys)
        for key in left:
            run, watched = runs.get(key), self.open[key]
            has_begun = run is not None and run.status in (Status.RUNNING, Status.INTERRUPTED)
            iteration = run.iterations if run is not None and has_begun else 0
            if (not has_begun and has_progress) or watched.may_resume_after_loss(iteration):
                again.append(watched)
                has_progress = has_progress or has_begun
                if has_begun:
                    self.print_line(f"{watched.job.label} resumes from iteration {iteration}: {cause}")
                continue
            record_failure(self.store, watched.job, cause)
            outcomes.append(self._close(key, Ending.FAILED, cause))
        return outcomes, again

    def _close(self, key: str, ending: Ending, cause: str = "") -> JobOutcome:
        """Remove a job from the display, and return its outcome."""
        watched = self.open.pop(key)
        watched.display.close()
        return JobOutcome(watched.job, ending, cause)
