"""Train runs on a Ray cluster, one task per run.

A run whose machine or process is lost starts again elsewhere from its last checkpoint, as long as it has progressed.
Ray's own retries cannot check this condition. The progress of the runs is read from the database. Ray is imported where
it is used, because it is an extra.
"""

from __future__ import annotations

import logging
import os
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

from orthobench.errors import OrthobenchError, UsageError, needs_extra, one_line
from orthobench.executors.cluster import LOCK_GRACE, WatchedJob, check_shared, show
from orthobench.executors.job import Ending, Job, JobOutcome, SinkFactory, attempt, record_failure
from orthobench.options.arguments import DeviceName
from orthobench.options.run_options import SweepOptions
from orthobench.store import Store
from orthobench.system.location import Location
from orthobench.system.own_code import described
from orthobench.training.events import EventSink

POLL_SECONDS = 0.5
"""Time between two checks of the tasks and their progress."""


class RayCluster:
    """A connection to a cluster.

    Attributes:
        device: the kind of device on which the runs train.
    """

    def __init__(self, database: Location, options: SweepOptions) -> None:
        """Connect to a cluster, and check that its machines can share the database and the checkpoints.

        If no cluster runs on this machine, one is started. The device "auto" means the GPUs, if there are any.

        Raises:
            UsageError: Ray is not installed, there is no cluster, or its machines cannot share the files.
        """
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")  # no usage reports
        try:
            import ray
        except ImportError as error:
            raise needs_extra("`executor='ray'`", "Ray", "ray") from error
        try:
            address = None if options.executor == "ray" else options.executor
            ray.init(address, logging_level=logging.WARNING, log_to_driver=False)
        except (ConnectionError, ValueError, RuntimeError) as error:
            raise UsageError(f"there is no Ray cluster at {address or 'this machine'}: {error}") from error
        self.ray = ray
        self.options, self.threads = options, options.threads or 1
        nodes = [node["Resources"] for node in ray.nodes() if node["Alive"]]
        self.device: DeviceName = options.device
        if options.device == "auto":
            self.device = "cuda" if any(resources.get("GPU") for resources in nodes) else "cpu"
        try:
            if len(nodes) > 1 or address is not None:
                check_shared(database, options.checkpoints)
            options.check_gpu_share(self.device)
        except OrthobenchError:
            ray.shutdown()
            raise
        self.here = None if database.is_server else ray.get_runtime_context().get_node_id()

    def close(self) -> None:
        """End the connection."""
        self.ray.shutdown()

    def room(self) -> int:
        """Return how many runs the present machines of the cluster can train at the same time."""
        resources = self.ray.cluster_resources()
        if self.device == "cuda":
            slots = int(resources.get("GPU", 0) * self.options.gpu_share)
        else:
            slots = int(resources.get("CPU", 0) // self.threads)
        return max(1, min(slots, self.options.jobs or slots))

    def submit(self, job: Job, resumed: bool) -> Any:
        """Start a job on the cluster, and return a reference to its outcome."""
        # One call for each process, because Ray would otherwise train the next run in what the last one has left.
        resources: dict[str, Any] = {"num_cpus": self.threads, "max_retries": 0, "max_calls": 1, "name": job.label}
        if self.device == "cuda":
            resources["num_gpus"] = 1 / self.options.gpu_share
        if self.here is not None:  # the database is a file on this machine
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            # Not soft, because no other machine has the file.
            resources["scheduling_strategy"] = NodeAffinitySchedulingStrategy(self.here, soft=False)
        return self.ray.remote(**resources)(train_remotely).remote(replace(job, threads=self.threads), resumed)


@dataclass
class RayExecutor:
    """An executor on a cluster.

    Attributes:
        print_line: receives a line about each run that is lost and started again.
    """

    cluster: RayCluster
    store: Store
    open_sink: SinkFactory
    should_stop: Callable[[], bool]
    print_line: Callable[[str], None]

    def __post_init__(self) -> None:
        self.ray = self.cluster.ray

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[JobOutcome]:
        """Train jobs and yield their outcomes. Closing the iterator early cancels the tasks."""
        waiting, tasks = deque(jobs), dict[Any, WatchedJob]()
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
                        if task.sink is None:  # it waits for a slot
                            self.ray.cancel(reference, force=False)
                while waiting and (self.cluster.options.jobs is None or len(tasks) < self.cluster.options.jobs):
                    job = waiting.popleft()
                    tasks[self.cluster.submit(job, resumed=False)] = WatchedJob(job)
                if not tasks:
                    break
                done, _ = self.ray.wait(list(tasks), num_returns=1, timeout=POLL_SECONDS)
                show(tasks.values(), self.store, self.open_sink)
                for reference in done:
                    task = tasks.pop(reference)
                    outcome = self._outcome(task, reference, stopping)
                    if isinstance(outcome, WatchedJob):
                        tasks[self.cluster.submit(task.job, resumed=True)] = task
                        continue
                    task.display.close()
                    if outcome is not None:
                        yield outcome
        finally:
            for reference, task in tasks.items():
                # Whatever happens, because the cluster may be gone, and the displays have to close.
                with suppress(Exception):
                    self.ray.cancel(reference, force=True)
                task.display.close()

    def _outcome(self, task: WatchedJob, reference: Any, stopping: bool) -> JobOutcome | WatchedJob | None:
        """Return the outcome of a job, the task itself if it has to start again, or None if it never started."""
        from ray import exceptions

        job, run = task.job, self.store.find(task.job.spec.key)
        try:
            ending, cause, traceback = self.ray.get(reference)
            return JobOutcome(job, Ending(ending), cause, traceback)
        except exceptions.TaskCancelledError:
            return None if task.sink is None else JobOutcome(job, Ending.INTERRUPTED)
        except exceptions.RayTaskError as error:  # code around `attempt` failed
            cause = described(error.cause)
        except exceptions.RayError as error:
            cause = one_line(error)
            if stopping:
                return JobOutcome(job, Ending.INTERRUPTED)
            iteration = run.iterations if run is not None else 0
            if task.may_resume_after_loss(iteration):
                self.print_line(
                    f"{job.label} was lost at iteration {iteration} and resumes from its last checkpoint: {cause}"
                )
                return task
        record_failure(self.store, job, cause)
        return JobOutcome(job, Ending.FAILED, cause)


def train_remotely(job: Job, resumed: bool) -> tuple[str, str, str]:
    """Train a job on a machine of the cluster, and return its ending, cause and traceback.

    Ray asks it to stop with SIGINT.

    Args:
        resumed: whether the run was lost on another machine and may still be locked there.
    """
    stop = threading.Event()
    signal.signal(signal.SIGINT, lambda *_: stop.set())
    deadline = time.monotonic() + LOCK_GRACE
    while True:
        outcome = attempt(job, EventSink(), stop.is_set)
        if outcome.ending != Ending.BUSY or not resumed or stop.is_set() or time.monotonic() > deadline:
            return outcome.ending.value, outcome.cause, outcome.traceback
        time.sleep(1.0)
