"""Runs side by side on this machine, each in a process of its own.

What ends such a process ends one run: a segmentation fault or the system's killer is seen by the exit code, entered
in the database with its cause, and the next run is started. The processes are in sessions of their own, so that a
terminal's Ctrl-C reaches the supervisor alone, which asks them to stop; should it die itself, their input ends and
they stop, too.
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
from typing import Any

import torch
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import UsageError
from orthobench.execution.job import Ending, Job, Outcome, Watch, record_failure
from orthobench.store import Status, Store
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.events import Observer, Point
from orthobench.training.lifecycle import is_settled
from orthobench.training.locks import is_locked

LOOK_EVERY = 0.1
"""Seconds between two questions whether to stop."""
STOP_WITHIN = 60.0
"""Seconds that a process has for its checkpoint when the supervisor fails."""


def gpus() -> list[str]:
    """The GPUs of this process, as CUDA_VISIBLE_DEVICES names them."""
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    here = [str(number) for number in range(torch.cuda.device_count())]
    return named.split(",")[: len(here)] if named else here


def places(device: torch.device, jobs: int | None, gpu_share: int, cores: int) -> list[str | None]:
    """The GPU of each run of those that are made at once, in turn; of runs on the CPU, None.

    Args:
        jobs: how many at once; None for as many as there are cores, or as the GPUs take.
        gpu_share: runs on one GPU at once.

    Raises:
        UsageError: more runs than the GPUs are to take, or a share of a GPU without one.
    """
    if device.type != "cuda":
        if gpu_share > 1:
            raise UsageError("--gpu-share is for runs on GPUs: leave it out, or give --device cuda")
        return [None] * (cores if jobs is None else jobs)
    every: list[str | None] = [gpu for _ in range(gpu_share) for gpu in gpus()]
    if jobs is not None and jobs > len(every):
        raise UsageError(
            f"-j {jobs} is more than {len(every) // gpu_share} GPU(s) with {gpu_share} run(s) each: "
            f"give --gpu-share {-(-jobs * gpu_share // len(every))}, or a smaller -j"
        )
    return every[:jobs]


class LocalProcesses:
    """An executor with one process a run, one run at a place at a time.

    cores: shared out evenly as threads, among as many runs as are under way or waiting, at most. tell: gets what the
    processes print, line by line.
    """

    def __init__(
        self,
        store: Store,
        places: Sequence[str | None],
        cores: int,
        watch: Watch,
        should_stop: Callable[[], bool],
        tell: Callable[[str], None],
    ) -> None:
        self.store, self.places, self.cores = store, places, cores
        self.watch, self.should_stop, self.tell = watch, should_stop, tell

    def run(self, jobs: Sequence[Job], may_start: Callable[[], bool] = lambda: True) -> Iterator[Outcome]:
        """Every job's outcome, as they end. When this is left early, what still runs is killed."""
        waiting, free = deque(jobs), deque(self.places)
        running: dict[int, _Child] = {}
        messages: queue.SimpleQueue[tuple[int, dict[str, Any]]] = queue.SimpleQueue()
        stopping = False
        try:
            while running or waiting:
                if not stopping and self.should_stop():
                    stopping = True
                    waiting.clear()
                    for child in running.values():
                        child.ask_to_stop()
                if waiting and free and not may_start():
                    waiting.clear()
                while waiting and free:
                    sharers = min(len(self.places), len(running) + len(waiting))
                    job = replace(waiting.popleft(), threads=max(1, self.cores // sharers))
                    if settled := self._settled(job):
                        yield settled
                        continue
                    try:
                        child = _Child(job, free.popleft(), messages)
                    except OSError as error:
                        yield self._failed(job, f"no process could be started: {error.strerror}")
                        continue
                    running[child.process.pid] = child
                    child.observer = child.watched.enter_context(self.watch(job))
                try:
                    pid, message = messages.get(timeout=LOOK_EVERY)
                except queue.Empty:
                    continue
                child = running[pid]
                if message["kind"] == "printed":
                    self.tell(f"{child.job.label}: {message['line']}")
                elif message["kind"] != "exited":
                    self._pass_on(child, message)
                else:
                    child.end()
                    outcome = self._outcome(child, message["code"], stopping)
                    free.append(running.pop(pid).place)
                    yield outcome
        except Exception:  # such as a database that is gone
            self._stop_all(running.values())
            raise
        finally:
            for child in running.values():
                child.process.kill()
            for child in running.values():
                child.process.wait()
                child.end()
                with suppress(SQLAlchemyError):
                    self._mark_interrupted(child.job)

    def _stop_all(self, running: Iterable[_Child]) -> None:
        """Give every process the time to write its checkpoint."""
        for child in running:
            child.ask_to_stop()
        for child in running:
            with suppress(subprocess.TimeoutExpired):
                child.process.wait(STOP_WITHIN)

    def _settled(self, job: Job) -> Outcome | None:
        """What came of a job that another process is at, or has finished meanwhile."""
        folder = checkpoints_at(job.checkpoints, job.spec.key)
        if is_locked(self.store, folder):
            return Outcome(job, Ending.BUSY, f"run {job.spec.key} is being trained by another process")
        run = self.store.find(job.spec.key)
        if run is not None and is_settled(run, folder, job.on_divergence):
            return Outcome(job, Ending(run.status), run.message or "")
        return None

    def _pass_on(self, child: _Child, message: dict[str, Any]) -> None:
        """Tell the job's observer what its process tells."""
        kind = message.pop("kind")
        assert child.observer is not None
        if kind == "started":
            run = self.store.find(child.job.spec.key)
            assert run is not None
            child.observer.started(run)
        elif kind == "iterated":
            child.observer.iterated(**message)
        elif kind == "tested":
            child.observer.tested(Point(**message))
        elif kind == "concluding":
            child.observer.concluding(**message)
        else:
            child.ended = Outcome(child.job, Ending(message["ending"]), message["cause"])

    def _outcome(self, child: _Child, code: int, stopping: bool) -> Outcome:
        """What came of a process that has ended."""
        if child.ended is not None:
            return child.ended
        if stopping and code in (-signal.SIGINT, -signal.SIGTERM):  # before it could take note of them
            return Outcome(child.job, Ending.INTERRUPTED)
        run = self.store.find(child.job.spec.key)
        if run is not None and Status(run.status).is_final:
            return Outcome(child.job, Ending(run.status), run.message or "")
        return self._failed(child.job, in_words(code))

    def _failed(self, job: Job, cause: str) -> Outcome:
        record_failure(self.store, job, cause)
        return Outcome(job, Ending.FAILED, cause)

    def _mark_interrupted(self, job: Job) -> None:
        run = self.store.find(job.spec.key)
        if run is not None and run.status == Status.RUNNING:
            self.store.update(run.id, {"status": Status.INTERRUPTED})


class _Child:
    """A worker's process and the threads that read what it writes."""

    def __init__(self, job: Job, place: str | None, messages: queue.SimpleQueue[tuple[int, dict[str, Any]]]) -> None:
        self.job, self.place, self.messages = job, place, messages
        self.watched = ExitStack()
        self.observer: Observer | None = None
        self.ended: Outcome | None = None
        surroundings = os.environ | {"PYTHONPATH": os.pathsep.join(path or str(Path.cwd()) for path in sys.path)}
        surroundings["OMP_NUM_THREADS"] = str(job.threads)
        if place is not None:
            surroundings["CUDA_VISIBLE_DEVICES"] = place
        self.process = subprocess.Popen(
            [sys.executable, "-P", "-m", "orthobench.execution.worker"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=surroundings,
            start_new_session=True,
        )
        self._printed = threading.Thread(target=self._read_printed, daemon=True)
        self._printed.start()
        threading.Thread(target=self._read_messages, daemon=True).start()
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has ended already, which its exit code tells
            self.process.stdin.write(pickle.dumps(job))
            self.process.stdin.flush()

    def ask_to_stop(self) -> None:
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):
            self.process.stdin.close()

    def end(self) -> None:
        """Take it off the display; the threads close what they read."""
        self.ask_to_stop()
        self.watched.close()

    def _read_messages(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                with suppress(ValueError):  # cut off by the end of the process
                    self.messages.put((self.process.pid, json.loads(line)))
        self._printed.join()
        self.messages.put((self.process.pid, {"kind": "exited", "code": self.process.wait()}))

    def _read_printed(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                content = {"kind": "printed", "line": line.decode(errors="replace").rstrip()}
                self.messages.put((self.process.pid, content))


def in_words(code: int) -> str:
    """What a process's exit code says of its end, which it did not announce."""
    if code >= 0:
        return f"its process ended with exit code {code}"
    if -code == signal.SIGSEGV:
        return "segmentation fault"
    if -code == signal.SIGKILL:
        return "killed by signal 9 (out of memory?)"
    return f"killed by signal {-code} ({signal.strsignal(-code)})"
