"""Train runs in worker processes on this machine.

On Linux the workers are forks of one process that has imported PyTorch, the fork server of `multiprocessing`. If a
worker dies, only its own run ends. A segmentation fault or the out-of-memory killer shows in its exit code, the
database records the cause, and the next run starts. Workers have their own sessions, so a Ctrl-C on the terminal
reaches only this process, which then asks the workers to stop. If this process dies, its pipes close and they stop.
"""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Any

import torch
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import UsageError
from orthobench.executors import worker
from orthobench.executors.job import Ending, Job, JobOutcome, SinkFactory, record_failure
from orthobench.store import Status, Store
from orthobench.system.cores import IDLE_THREADS
from orthobench.system.signals import REQUESTS
from orthobench.system.spawn import start, start_fork_server
from orthobench.training.checkpoint import is_locked, remove_leftovers
from orthobench.training.events import EventSink
from orthobench.training.settled import is_settled

KILLED = "killed by signal"
"""The beginning of the cause of a run whose process the system has killed."""
POLL_SECONDS = 0.1
"""Time between two checks for a request to stop."""
STOP_SECONDS = 60.0
"""Time that a worker gets to write its checkpoint when this process fails."""
CONTEXT: Any = multiprocessing.get_context("forkserver" if sys.platform == "linux" else "spawn")
"""How workers start; Apple's libraries do not survive a fork."""
PLANNED = "orthobench.models.", "orthobench.tasks.", "orthobench.recurrence."
"""The beginnings of the names of modules that runs of the same model and task need."""


def visible_gpus() -> list[str]:
    """Return the GPUs of this process, with the names that CUDA_VISIBLE_DEVICES uses."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    numbers = [str(number) for number in range(torch.cuda.device_count())]
    return named.split(",")[: len(numbers)] if named else numbers


def worker_slots(device: torch.device, jobs: int | None, gpu_share: int, cores: int) -> list[str | None]:
    """Return one slot for each run that may train at the same time: its GPU, or None on the CPU.

    Args:
        jobs: the number of runs at the same time; None for one per core, or for as many as the GPUs can share.
        gpu_share: the number of runs that share one GPU.

    Raises:
        UsageError: there are more runs than the GPUs can share.
    """
    if device.type != "cuda":
        return [None] * (cores if jobs is None else jobs)
    slots: list[str | None] = [gpu for _ in range(gpu_share) for gpu in visible_gpus()]
    if jobs is not None and jobs > len(slots):
        raise UsageError(
            f"`jobs={jobs}` is more than {len(slots) // gpu_share} GPU(s) with {gpu_share} run(s) each: "
            f"give `gpu_share={-(-jobs * gpu_share // len(slots))}`, or a smaller `jobs`"
        )
    return slots[:jobs]


@dataclass
class ProcessExecutor:
    """An executor with one worker process per run, and one run per slot at a time.

    Attributes:
        cores: the number of threads, which running and waiting runs share evenly.
        print_line: receives each line that a worker prints.
    """

    store: Store
    slots: Sequence[str | None]
    cores: int
    open_sink: SinkFactory
    should_stop: Callable[[], bool]
    print_line: Callable[[str], None]

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[JobOutcome]:
        """Train jobs and yield their outcomes. Closing the iterator early kills the workers."""
        waiting, free = deque(jobs), deque(self.slots)
        running: list[_Worker] = []
        stopping = False
        server = prepare_forks()  # not awaited here, because it would hold up this loop, and with it the display
        try:
            while running or waiting:
                if not stopping and self.should_stop():
                    stopping = True
                    waiting.clear()
                    for each in running:
                        if each.has_reported:
                            each.ask_to_stop()
                        else:  # it still generates its data, and has nothing to lose
                            each.process.kill()
                if waiting and free and not may_start():
                    waiting.clear()
                while waiting and free and not server.is_alive():
                    # Not all slots, because the last runs of a sweep are fewer, and would leave cores idle.
                    sharers = min(len(self.slots), len(running) + len(waiting))
                    job = replace(waiting.popleft(), threads=max(1, self.cores // sharers))
                    if settled := self._settled_outcome(job):
                        yield settled
                        continue
                    try:
                        # The slot stays in `free` until the process exists, because a failed start would lose it.
                        each = _Worker(job, free[0])
                    except (OSError, EOFError) as error:
                        yield self._failed(job, f"no process could be started: {error}")
                        continue
                    free.popleft()
                    running.append(each)
                    each.sink = each.display.enter_context(self.open_sink(job))
                # With a timeout, because a signal's handler only sets a flag, and `wait` would go on waiting.
                ends: dict[Any, _Worker] = {end: each for each in running for end in each.open}
                for end in wait(list(ends), POLL_SECONDS):
                    each = ends[end]
                    if end is each.printed:
                        for line in each.printed_lines():
                            self.print_line(f"{each.job.label}: {line}")
                    else:
                        each.receive_event()
                    if not each.open:
                        running.remove(each)
                        each.close()
                        free.append(each.slot)
                        yield self._outcome(each, stopping)
        # Workers get time for a checkpoint here, because `finally` kills them, and all
        # iterations since the last one would be lost.
        except Exception:  # such as a lost database
            for each in running:
                each.leave()
            for each in running:
                each.process.join(STOP_SECONDS)
            raise
        finally:
            # All are killed before the first is awaited, because they then end at the same time.
            for each in running:
                each.process.kill()
            for each in running:
                each.close()
                with suppress(SQLAlchemyError):
                    self._mark_interrupted(each.job)

    def _settled_outcome(self, job: Job) -> JobOutcome | None:
        """Return the outcome of a job that another process trains now or has finished in the meantime."""
        if is_locked(self.store, job.checkpoints):
            return JobOutcome(job, Ending.BUSY, f"run {job.spec.key} is being trained by another process")
        run = self.store.find(job.spec.key)
        if run is not None and is_settled(run, job.checkpoints, job.options.on_divergence):
            return JobOutcome(job, Ending(run.status), run.message or "")
        return None

    def _outcome(self, worker: _Worker, stopping: bool) -> JobOutcome:
        """Return the outcome of a worker that has exited."""
        # The worker's own word counts more than its exit code, because Python may still crash while
        # it shuts down, with everything stored.
        if worker.outcome is not None:
            return worker.outcome
        code = worker.process.exitcode
        assert code is not None
        if stopping and (not worker.has_reported or -code in REQUESTS):  # before it had signal handlers
            self._mark_interrupted(worker.job)
            return JobOutcome(worker.job, Ending.INTERRUPTED)
        # Ask the database, because a worker may be killed between its last commit and its message.
        run = self.store.find(worker.job.spec.key)
        if run is not None and Status(run.status).is_final:
            remove_leftovers(self.store, worker.job.checkpoints)
            return JobOutcome(worker.job, Ending(run.status), run.message or "")
        return self._failed(worker.job, describe_exit(code))

    def _failed(self, job: Job, cause: str) -> JobOutcome:
        record_failure(self.store, job, cause)
        return JobOutcome(job, Ending.FAILED, cause)

    def _mark_interrupted(self, job: Job) -> None:
        run = self.store.find(job.spec.key)
        if run is not None and run.status == Status.RUNNING:
            self.store.update(run.id, {"status": Status.INTERRUPTED})


def prepare_forks() -> threading.Thread:
    """Start the process that forks new ones, unless it runs, in a thread that ends once it can fork."""

    def prepare() -> None:
        # Also what planning has imported here: the models and tasks of the runs, and their kernels.
        own = [name for name in sys.modules if name.startswith(PLANNED)]
        with suppress(OSError, EOFError):  # the first process says why
            if CONTEXT.get_start_method() == "forkserver":
                start_fork_server(["orthobench.executors.preload", *own])

    thread = threading.Thread(target=prepare, daemon=True)
    thread.start()
    return thread


class _Worker:
    """A worker process.

    Attributes:
        open: the pipes to it that it has not closed; it closes all of them when it ends.
    """

    def __init__(self, job: Job, slot: str | None) -> None:
        self.job, self.slot = job, slot
        self.display = ExitStack()
        self.sink: EventSink | None = None
        self.outcome: JobOutcome | None = None
        self.has_reported = False
        # The GPU is chosen by a variable, because a job knows it as `cuda` alone. A fork still reads the
        # variable, as its server opens no CUDA context.
        own = {"OMP_NUM_THREADS": str(job.threads)} | ({} if slot is None else {"CUDA_VISIBLE_DEVICES": slot})
        self._events, events = CONTEXT.Pipe()
        self.printed, printed = CONTEXT.Pipe(duplex=False)
        self.open: list[Connection] = [self._events, self.printed]
        self._line = b""
        # No copy may stay open here, because a reader sees the end of a pipe only when all its writers are closed.
        with events, printed:
            environment = {**IDLE_THREADS, **os.environ, **own}
            self.process = CONTEXT.Process(target=worker.main, args=(job, events, printed, environment))
            start(self.process)

    def ask_to_stop(self) -> None:
        """Ask the worker to stop after its current iteration."""
        with suppress(OSError):  # it has already ended
            self._events.send(None)

    def receive_event(self) -> None:
        """Send the next event of the worker to its sink, or keep its outcome."""
        try:
            event, *content = self._events.recv()
        except (EOFError, OSError):  # also in the middle of an event
            self.open.remove(self._events)
            return
        self.has_reported = True
        if event == "outcome":
            self.outcome = JobOutcome(self.job, *content)
        else:
            getattr(self.sink, event)(*content)

    def printed_lines(self) -> list[str]:
        """Return the lines that the worker has printed; at the end also a line without an end."""
        new = os.read(self.printed.fileno(), 1 << 16)
        *lines, self._line = (self._line + new).split(b"\n")
        if not new:
            self.open.remove(self.printed)
            lines += filter(None, [self._line])
        return [line.decode(errors="replace").rstrip() for line in lines]

    def leave(self) -> None:
        """Close the pipes, upon which the worker stops after its current iteration, and remove it from the display."""
        self._events.close()
        self.printed.close()
        self.display.close()

    def close(self) -> None:
        """Wait for the end of the process."""
        self.leave()
        self.process.join()


def describe_exit(code: int) -> str:
    """Describe why a process ended with this exit code."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    if -code == signal.SIGSEGV:
        return "segmentation fault"
    if -code == signal.SIGKILL:
        return f"{KILLED} 9 (out of memory?)"
    return f"{KILLED} {-code} ({signal.strsignal(-code)})"
