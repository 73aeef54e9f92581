"""Runs on a Ray cluster, one task a run.

A run whose machine or process is lost is started again elsewhere, from its last checkpoint, for as long as it gets on:
only one that is lost again and again where it was counts as failed. Ray's own retries would not tell the one from the
other. How the runs go is read from the database, which they write to anyway.

This module is imported on every machine before the environment of its threads is set: what is heavy is imported later.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from orthobench.errors import OrthobenchError, UsageError
from orthobench.store.open import is_server

if TYPE_CHECKING:
    from orthobench.execution.job import Job, Outcome, Watch
    from orthobench.store import Run, Store
    from orthobench.training.events import Observer, Point
    from orthobench.training.lifecycle import DeviceName

LOSSES = 2
"""How often a run may be lost without having got on in between."""
GRACE = 120.0
"""For how many seconds a run that was lost may still seem to be trained, before its machine is known to be gone."""
LOOK_EVERY = 0.5
"""Seconds between two looks at the tasks and at how their runs go."""


class RayCluster:
    """A connection to a cluster; as a context it ends with it.

    device: what runs are trained on there.
    """

    def __init__(
        self,
        address: str | None,
        database: str,
        checkpoints: str | None,
        device: DeviceName = "auto",
        threads: int = 1,
        gpu_share: int = 1,
        at_once: int | None = None,
        data_folder: Path | None = None,
    ) -> None:
        """Connect to a cluster, and see that its machines can share the database and the checkpoints.

        Args:
            address: "ray://host:port"; None for the cluster that this machine is part of, which is begun if need be.
            checkpoints: the place that was asked for, if one was.
            device: auto: its GPUs, if it has any.
            threads: of each run, for which it asks as many CPUs.
            gpu_share: runs on one GPU at once.
            at_once: runs under way at most; None: as many as there is room for.
            data_folder: of the data sets, on every machine; None: each has its own usual one.

        Raises:
            UsageError: Ray is not installed, there is no cluster there, or its machines could not share these.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # nobody asked for reports to its makers
        try:
            import ray
        except ImportError as error:
            raise UsageError("--executor ray needs Ray: pip install 'orthobench[ray]'") from error
        try:
            ray.init(address, logging_level=logging.WARNING, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"there is no Ray cluster at {address or 'this machine'}: {error}") from error
        self.ray = ray
        self.threads, self.gpu_share, self.at_once, self.data_folder = threads, gpu_share, at_once, data_folder
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.device: DeviceName = device
        if device == "auto":
            self.device = "cuda" if any(resources.get("GPU") for resources in nodes) else "cpu"
        try:
            self._check(database, checkpoints, several=len(nodes) > 1 or address is not None)
        except OrthobenchError:
            ray.shutdown()
            raise
        self.here = None if is_server(database) else ray.get_runtime_context().get_node_id()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.ray.shutdown()

    def room(self) -> int:
        """How many runs it has room for at once, by the machines it has now."""
        resources = self.ray.cluster_resources()
        if self.device == "cuda":
            places = int(resources.get("GPU", 0) * self.gpu_share)
        else:
            places = int(resources.get("CPU", 0) // self.threads)
        return max(1, min(places, self.at_once or places))

    def _check(self, database: str, checkpoints: str | None, *, several: bool) -> None:
        if several and not is_server(database):
            raise UsageError(
                f"runs on several machines cannot share the database {database}: SQLite's locks and its log work on "
                "one machine alone; name a server with --db postgresql://user@host/name"
            )
        if several and checkpoints is None:
            raise UsageError(
                "runs may go on on another machine, and need their checkpoints there: name a folder that all machines "
                "see, or a URL, with --checkpoints"
            )
        if self.device == "cpu" and self.gpu_share > 1:
            raise UsageError("--gpu-share is for runs on GPUs: leave it out, or give --device cuda")

    def submit(self, job: Job, resumed: bool) -> Any:
        """Start a job somewhere; a reference to what will come of it."""
        options: dict[str, Any] = {"num_cpus": self.threads, "max_retries": 0, "max_calls": 1, "name": job.label}
        if self.device == "cuda":
            options["num_gpus"] = 1 / self.gpu_share
        if self.here is not None:  # the database is a file of this machine
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            options["scheduling_strategy"] = NodeAffinitySchedulingStrategy(self.here, soft=False)
        folder = None if self.data_folder is None else str(self.data_folder.absolute())
        job = replace(job, device=self.device, threads=self.threads, data_folder=folder)
        return self.ray.remote(**options)(carry_out).remote(job, resumed)


@dataclass
class _Task:
    """A job under way: how often it was lost, how far it was then, and how far it was when it was looked at last."""

    job: Job
    losses: int = 0
    lost_at: int = -1
    seen: int = -1
    observer: Observer | None = None
    watched: ExitStack = field(default_factory=ExitStack)


class RayTasks:
    """An executor on a cluster. tell: gets a line on each run that is lost and started again."""

    def __init__(
        self,
        cluster: RayCluster,
        store: Store,
        watch: Watch,
        should_stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self.cluster, self.store, self.watch, self.should_stop, self.tell = cluster, store, watch, should_stop, tell
        self.ray = cluster.ray

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        """Every job's outcome, as they end. When this is left early, what still runs is ended at once."""
        waiting, tasks = deque(jobs), dict[Any, _Task]()
        stopping = over = False
        try:
            while tasks or waiting:
                if not stopping and self.should_stop():
                    stopping = True
                    waiting.clear()
                    for reference in tasks:
                        self.ray.cancel(reference, force=False)
                if not over and not may_start():
                    over = True
                    waiting.clear()
                    for reference, task in tasks.items():
                        if task.observer is None:  # it waits for a place
                            self.ray.cancel(reference, force=False)
                while waiting and (self.cluster.at_once is None or len(tasks) < self.cluster.at_once):
                    job = waiting.popleft()
                    tasks[self.cluster.submit(job, resumed=False)] = _Task(job)
                if not tasks:
                    break
                done, _ = self.ray.wait(list(tasks), num_returns=1, timeout=LOOK_EVERY)
                self._show(list(tasks.values()))
                for reference in done:
                    task = tasks.pop(reference)
                    outcome = self._outcome(task, reference, stopping)
                    if isinstance(outcome, _Task):
                        tasks[self.cluster.submit(task.job, resumed=True)] = task
                        continue
                    task.watched.close()
                    if outcome is not None:
                        yield outcome
        finally:
            for reference, task in tasks.items():
                with suppress(Exception):
                    self.ray.cancel(reference, force=True)
                task.watched.close()

    def _outcome(self, task: _Task, reference: Any, stopping: bool) -> Outcome | _Task | None:
        """What came of a job; the task itself if it is to be started again, None if it was never begun."""
        from ray import exceptions

        from orthobench.execution.job import Ending, Outcome, record_failure

        job, run = task.job, self.store.find(task.job.spec.key)
        try:
            ending, cause = self.ray.get(reference)
            return Outcome(job, Ending(ending), cause)
        except exceptions.TaskCancelledError:
            return None if task.observer is None else Outcome(job, Ending.INTERRUPTED)
        except exceptions.RayTaskError as error:  # it is not `attempt` that failed, but what is around it
            cause = f"{type(error.cause).__name__}: {error.cause}".splitlines()[0]
        except exceptions.RayError as error:
            cause = str(error).strip().splitlines()[0]
            if stopping:
                return Outcome(job, Ending.INTERRUPTED)
            at = run.iterations if run is not None else 0
            task.losses = task.losses + 1 if at <= task.lost_at else 1
            task.lost_at = at
            if task.losses <= LOSSES:
                self.tell(f"{job.label} was lost at iteration {at} and goes on from its last checkpoint: {cause}")
                return task
        record_failure(self.store, job, cause)
        return Outcome(job, Ending.FAILED, cause)

    def _show(self, tasks: Sequence[_Task]) -> None:
        """Tell the jobs' observers what the database has of their runs."""
        from orthobench.store import Status

        runs = {run.key: run for run in self.store.runs(keys=[task.job.spec.key for task in tasks])}
        for task in tasks:
            run = runs.get(task.job.spec.key)
            if run is None or run.iterations == task.seen or (task.observer is None and run.status != Status.RUNNING):
                continue
            if task.observer is None:
                task.observer = task.watched.enter_context(self.watch(task.job))
                task.observer.started(run)
            task.seen = run.iterations
            task.observer.iterated(run.iterations)
            if run.final_value is not None:
                task.observer.tested(_point(run))


def _point(run: Run) -> Point:
    """Where a run was tested last."""
    from orthobench.training.events import Point

    assert run.final_value is not None
    epoch = run.iterations // run.iterations_per_epoch
    return Point(run.iterations, epoch, None, {run.metric: run.final_value})


def carry_out(job: Job, resumed: bool) -> tuple[str, str]:
    """The task, on some machine of the cluster: how the job ended, and why. Ray's request to stop comes as SIGINT.

    Args:
        resumed: the run was lost elsewhere, where it may not yet be known.
    """
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    from orthobench.execution.job import Ending, attempt
    from orthobench.training.events import Unwatched

    until = time.monotonic() + GRACE
    while True:
        outcome = attempt(job, Unwatched(), stop.is_set)
        if outcome.ending != Ending.BUSY or not resumed or stop.is_set() or time.monotonic() > until:
            return outcome.ending.value, outcome.cause
        time.sleep(1.0)
