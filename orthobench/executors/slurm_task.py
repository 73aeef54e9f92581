"""Train a group of runs on a node of a SLURM cluster: the function that submitit calls there."""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path

import torch

from orthobench.executors.cluster import LOCK_GRACE
from orthobench.executors.job import Ending, Job
from orthobench.executors.processes import ProcessExecutor, worker_slots
from orthobench.store import open_store
from orthobench.system.signals import stop_signals
from orthobench.training.events import EventSink


@dataclass(frozen=True)
class RunGroup:
    """Runs that one SLURM task trains.

    Attributes:
        threads: the number of threads of each run.
        gpu_share: the number of runs that share one GPU.
        resumed: the keys of the runs that were lost on another machine and may still be locked there.
        no_more: a file whose existence says that the budget is spent, so no further run starts.
    """

    jobs: tuple[Job, ...]
    threads: int
    gpu_share: int
    resumed: frozenset[str]
    no_more: Path

    def __call__(self) -> list[tuple[str, str, str]]:
        """Train the runs, each in its own process, and return the key, ending and cause of each that started.

        SLURM asks the task to stop before the time limit, before a preemption and after scancel, with SIGTERM or the
        signal that the user's options name.
        """
        stop = threading.Event()
        for number in stop_signals():
            signal.signal(number, lambda *_: stop.set())
        cores = max(self.threads, int(os.environ.get("SLURM_CPUS_PER_TASK") or self.threads))
        device, at_once = torch.device(self.jobs[0].options.device), None if self._on_gpus else cores // self.threads
        slots = worker_slots(device, at_once, self.gpu_share, cores)
        may_be_locked = self.resumed
        if int(os.environ.get("SLURM_RESTART_COUNT") or 0):  # SLURM itself has requeued the task
            may_be_locked |= {job.spec.key for job in self.jobs}
        deadline = time.monotonic() + LOCK_GRACE
        endings: dict[str, tuple[str, str, str]] = {}
        waiting = list(self.jobs)
        with open_store(self.jobs[0].database, create=True, stop_waiting=stop.is_set) as store:
            while waiting:
                executor = ProcessExecutor(store, slots, cores, lambda _: nullcontext(EventSink()), stop.is_set, _print)
                for outcome in executor.run(waiting, lambda: not self.no_more.exists()):
                    key = outcome.job.spec.key
                    if outcome.traceback:
                        _print(outcome.traceback)
                    endings[key] = (key, outcome.ending.value, outcome.cause)
                if stop.is_set() or self.no_more.exists() or time.monotonic() > deadline:
                    break
                waiting = [
                    job
                    for job in self.jobs
                    if job.spec.key in may_be_locked and endings.get(job.spec.key, ("", ""))[1] == Ending.BUSY
                ]
                time.sleep(1.0 if waiting else 0.0)
        return list(endings.values())

    @property
    def _on_gpus(self) -> bool:
        return self.jobs[0].options.device == "cuda"


def _print(line: str) -> None:
    """Write a line of a worker to SLURM's log of the task."""
    print(line, file=sys.stderr, flush=True)
