"""The process that forks workers: exit codes, its own death, and what a fork needs of it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator

import psutil
import pytest

from orthobench.executors.fork_server import LOST, Forked, ForkServer
from orthobench.executors.processes import worker_environment

MINUTES = 300.0
"""Seconds after which a busy machine should have imported PyTorch."""


@pytest.fixture(scope="module")
def server() -> Iterator[ForkServer]:
    """A server for all tests that leave it running, because it imports PyTorch."""
    server = ForkServer(worker_environment())
    yield server
    server.close()


def start(server: ForkServer, **environment: str) -> tuple[Forked, int, int]:
    """Start a worker that waits for its job; return it, its input and its error output."""
    (theirs, request), (output, their_output), (printed, their_printed) = os.pipe(), os.pipe(), os.pipe()
    worker = server.fork(environment, (theirs, their_output, their_printed))
    for descriptor in (theirs, their_output, their_printed, output):
        os.close(descriptor)
    return worker, request, printed


def test_worker_has_its_own_session_environment_and_exit_code(server):
    worker, request, printed = start(server, OMP_NUM_THREADS="3")
    process = psutil.Process(worker.pid)
    deadline = time.monotonic() + MINUTES
    while os.getsid(worker.pid) != worker.pid:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    os.write(request, b"this is not a pickled job")
    os.close(request)
    assert worker.wait(MINUTES) == 1
    with os.fdopen(printed, "rb") as lines:
        assert b"UnpicklingError" in lines.read()
    assert not process.is_running()


def test_killed_worker_ends_with_its_signal_and_the_server_goes_on(server):
    first, first_request, first_printed = start(server)
    second, second_request, second_printed = start(server)
    first.kill()
    assert first.wait(MINUTES) == -signal.SIGKILL
    assert psutil.Process(second.pid).is_running()
    os.close(second_request)  # the end of its input, without a job
    assert second.wait(MINUTES) == 1
    for descriptor in (first_request, first_printed, second_printed):
        os.close(descriptor)


def test_server_that_forks_has_one_thread_and_no_gpu(server):
    worker, request, printed = start(server)
    assert server.is_ready
    assert psutil.Process(server.process.pid).num_threads() == 1
    opened = {file.path for file in psutil.Process(server.process.pid).open_files()}
    assert not any("nvidia" in path for path in opened)
    worker.kill()
    for descriptor in (request, printed):
        os.close(descriptor)


def test_killed_server_leaves_its_workers_and_says_that_their_ends_are_unknown():
    server = ForkServer(worker_environment())
    worker, request, printed = start(server)
    server.process.kill()
    assert worker.wait(MINUTES) == LOST
    assert psutil.Process(worker.pid).is_running()
    with pytest.raises(OSError, match=r"Broken pipe|has ended"):
        start(server)
    os.kill(worker.pid, signal.SIGKILL)
    server.close()
    for descriptor in (request, printed):
        os.close(descriptor)
