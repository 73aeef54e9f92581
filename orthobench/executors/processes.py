"""Train runs in worker processes on this machine.

On Linux the workers are forks of one process that has imported PyTorch. If a worker dies, only its own run ends. A
segmentation fault or the out-of-memory killer shows in its exit code, the database records the cause, and the next run
starts. Workers have their own sessions, so a Ctrl-C on the terminal reaches only this process, which then asks the
workers to stop. If this process dies, the input of the workers ends and they stop.
"""

from __future__ import annotations

import json
import os
import pickle
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import torch
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import UsageError
from orthobench.executors.fork_server import ForkServer
from orthobench.executors.job import Ending, Job, Outcome, SinkFactory, record_failure
from orthobench.store import Status, Store
from orthobench.system.signals import REQUESTS
from orthobench.training.checkpoint import is_locked, remove_leftovers
from orthobench.training.events import EventSink, replay
from orthobench.training.settled import is_settled

POLL_SECONDS = 0.1
"""Time between two checks for a request to stop."""
STOP_SECONDS = 60.0
"""Time that a worker gets to write its checkpoint when this process fails."""
FORKS = sys.platform == "linux"
"""Whether workers are forks, which Apple's libraries do not survive."""


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


class ProcessExecutor:
    """An executor with one worker process per run, and one run per slot at a time.

    Args:
        cores: the number of threads, which running and waiting runs share evenly.
        print_line: receives each line that a worker prints.
    """

    def __init__(
        self,
        store: Store,
        slots: Sequence[str | None],
        cores: int,
        open_sink: SinkFactory,
        should_stop: Callable[[], bool],
        print_line: Callable[[str], None],
    ) -> None:
        self.store, self.slots, self.cores = store, slots, cores
        self.open_sink, self.should_stop, self.print_line = open_sink, should_stop, print_line

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        """Train jobs and yield their outcomes. Closing the iterator early kills the workers."""
        waiting, free = deque(jobs), deque(self.slots)
        running: dict[int, _Worker] = {}
        # One queue for all workers, because only this thread may touch sinks and the
        # database; the threads that read pipes just put.
        messages: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        stopping = False
        server: ForkServer | None = None
        try:
            while running or waiting:
                if not stopping and self.should_stop():
                    stopping = True
                    waiting.clear()
                    for worker in running.values():
                        if worker.has_reported:
                            worker.ask_to_stop()
                        else:  # it still imports torch or generates its data, and has nothing to lose
                            worker.process.kill()
                if waiting and free and not may_start():
                    waiting.clear()
                # A server that dies before it is ready is not replaced, because one that cannot import PyTorch would
                # fail again and again. The jobs then fail with its exit code.
                if waiting and FORKS and (server is None or (server.is_ready and server.process.poll() is not None)):
                    server = ForkServer(worker_environment())
                # Jobs wait until the import is over, because `fork` would block this loop
                # meanwhile, and with it the display and Ctrl-C.
                can_start = server is None or server.is_ready or server.process.poll() is not None
                while waiting and free and can_start:
                    # Not all slots, because the last runs of a sweep are fewer, and would leave cores idle.
                    sharers = min(len(self.slots), len(running) + len(waiting))
                    job = replace(waiting.popleft(), threads=max(1, self.cores // sharers))
                    if settled := self._settled_outcome(job):
                        yield settled
                        continue
                    try:
                        # The slot stays in `free` until the process exists, because a failed start would lose it.
                        worker = _Worker(job, free[0], messages, server)
                    except OSError as error:
                        code = None if server is None else server.process.poll()
                        cause = (
                            f"no process could be started: {error.strerror}" if code is None else describe_exit(code)
                        )
                        yield self._failed(job, cause)
                        continue
                    free.popleft()
                    running[worker.process.pid] = worker
                    worker.sink = worker.display.enter_context(self.open_sink(job))
                try:
                    # With a timeout, because a signal's handler only sets a flag, and `get` would go on waiting.
                    pid, message = messages.get(timeout=POLL_SECONDS)
                except queue.Empty:
                    continue
                worker = running[pid]
                worker.has_reported |= message["kind"] not in ("printed", "exited")
                match message["kind"]:
                    case "printed":
                        self.print_line(f"{worker.job.label}: {message['line']}")
                    case "outcome":
                        worker.outcome = Outcome(
                            worker.job, Ending(message["ending"]), message["cause"], message["traceback"]
                        )
                    case "exited":
                        worker.close()
                        outcome = self._outcome(worker, message["code"], stopping)
                        free.append(running.pop(pid).slot)
                        yield outcome
                    case _:
                        assert worker.sink is not None
                        replay(message, worker.sink)
        # Workers get time for a checkpoint here, because `finally` kills them, and all
        # iterations since the last one would be lost.
        except Exception:  # such as a lost database
            self._stop_all(running.values())
            raise
        finally:
            # All are killed before the first is awaited, because they then end at the same time.
            for worker in running.values():
                worker.process.kill()
            for worker in running.values():
                worker.process.wait()
                worker.close()
                with suppress(SQLAlchemyError):
                    self._mark_interrupted(worker.job)
            if server is not None:
                server.close()

    def _stop_all(self, workers: Iterable[_Worker]) -> None:
        """Ask all workers to stop, and give them time to write their checkpoints."""
        for worker in workers:
            worker.ask_to_stop()
        for worker in workers:
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(STOP_SECONDS)

    def _settled_outcome(self, job: Job) -> Outcome | None:
        """Return the outcome of a job that another process trains now or has finished in the meantime."""
        if is_locked(self.store, job.checkpoints):
            return Outcome(job, Ending.BUSY, f"run {job.spec.key} is being trained by another process")
        run = self.store.find(job.spec.key)
        if run is not None and is_settled(run, job.checkpoints, job.options.on_divergence):
            return Outcome(job, Ending(run.status), run.message or "")
        return None

    def _outcome(self, worker: _Worker, code: int, stopping: bool) -> Outcome:
        """Return the outcome of a worker that has exited."""
        # The worker's own word counts more than its exit code, because Python may still crash while
        # it shuts down, with everything stored.
        if worker.outcome is not None:
            return worker.outcome
        if stopping and (not worker.has_reported or -code in REQUESTS):  # before it had signal handlers
            self._mark_interrupted(worker.job)
            return Outcome(worker.job, Ending.INTERRUPTED)
        # Ask the database, because a worker may be killed between its last commit and its message.
        run = self.store.find(worker.job.spec.key)
        if run is not None and Status(run.status).is_final:
            remove_leftovers(self.store, worker.job.checkpoints)
            return Outcome(worker.job, Ending(run.status), run.message or "")
        return self._failed(worker.job, describe_exit(code))

    def _failed(self, job: Job, cause: str) -> Outcome:
        record_failure(self.store, job, cause)
        return Outcome(job, Ending.FAILED, cause)

    def _mark_interrupted(self, job: Job) -> None:
        run = self.store.find(job.spec.key)
        if run is not None and run.status == Status.RUNNING:
            self.store.update(run.id, {"status": Status.INTERRUPTED})


def worker_environment() -> dict[str, str]:
    """Return the environment of workers, except for what differs between them."""
    # Our own path and not the variable, because the program may have added folders in which its plugins are found.
    path = os.pathsep.join(path or str(Path.cwd()) for path in sys.path)
    return {**os.environ, "PYTHONPATH": path}


class _Worker:
    """A worker process and the threads that read its output.

    Args:
        server: forks the worker; None starts a new interpreter.
    """

    def __init__(
        self,
        job: Job,
        slot: str | None,
        messages: queue.SimpleQueue[tuple[int, dict[str, Any]]],
        server: ForkServer | None,
    ) -> None:
        self.job, self.slot, self.messages = job, slot, messages
        self.display = ExitStack()
        self.sink: EventSink | None = None
        self.outcome: Outcome | None = None
        self.has_reported = False
        # The GPU is chosen by a variable, because a job knows it as `cuda` alone. A fork still reads the
        # variable, as its server opens no CUDA context.
        own = {"OMP_NUM_THREADS": str(job.threads)} | ({} if slot is None else {"CUDA_VISIBLE_DEVICES": slot})
        (their_input, request), (output, their_output), (printed, their_printed) = os.pipe(), os.pipe(), os.pipe()
        theirs = their_input, their_output, their_printed
        try:
            self.process = _start(own, theirs) if server is None else server.fork(own, theirs)
        except OSError:
            for descriptor in (request, output, printed):
                os.close(descriptor)
            raise
        finally:
            # No copy may stay open here, because a reader sees the end of a pipe only when all its writers are closed.
            for descriptor in theirs:
                os.close(descriptor)
        self._request, self._output = os.fdopen(request, "wb"), os.fdopen(output, "rb")
        self._printed = threading.Thread(target=self._read_printed, args=[os.fdopen(printed, "rb")], daemon=True)
        self._printed.start()
        threading.Thread(target=self._read_messages, daemon=True).start()
        with suppress(BrokenPipeError):  # the worker has already ended; its exit code tells why
            self._request.write(pickle.dumps(job))
            self._request.flush()

    def ask_to_stop(self) -> None:
        """Close the worker's input, which asks it to stop."""
        with suppress(BrokenPipeError):
            self._request.close()

    def close(self) -> None:
        """Remove the worker from the display. The reading threads close the pipes."""
        self.ask_to_stop()
        self.display.close()

    def _read_messages(self) -> None:
        with self._output as lines:
            for line in lines:
                with suppress(ValueError):  # a line cut off by the end of the process
                    self.messages.put((self.process.pid, json.loads(line)))
        # First the thread of the printed lines, because `run` no longer knows the worker after "exited".
        self._printed.join()
        self.messages.put((self.process.pid, {"kind": "exited", "code": self.process.wait()}))

    def _read_printed(self, stream: BinaryIO) -> None:
        with stream as lines:
            for line in lines:
                content = {"kind": "printed", "line": line.decode(errors="replace").rstrip()}
                self.messages.put((self.process.pid, content))


def _start(environment: dict[str, str], descriptors: tuple[int, int, int]) -> subprocess.Popen[bytes]:
    """Start a worker as a new interpreter."""
    their_input, their_output, their_printed = descriptors
    return subprocess.Popen(
        # -P, because the current folder may hold a file such as random.py, which
        # Python would import in place of its own.
        [sys.executable, "-P", "-m", "orthobench.executors.worker"],
        stdin=their_input,
        stdout=their_output,
        stderr=their_printed,
        env=worker_environment() | environment,
        start_new_session=True,
    )


def describe_exit(code: int) -> str:
    """Describe why a process ended with this exit code."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    if -code == signal.SIGSEGV:
        return "segmentation fault"
    if -code == signal.SIGKILL:
        return "killed by signal 9 (out of memory?)"
    return f"killed by signal {-code} ({signal.strsignal(-code)})"
