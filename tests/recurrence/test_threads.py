"""The threads that divide the rows of a batch: torch's own, or a pool where torch has no OpenMP."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable

import pytest
import torch

from orthobench.recurrence import threads


@pytest.fixture(params=["torch's threads", "a pool"])
def two_threads(request, monkeypatch, restored_threads):
    torch.set_num_threads(2)
    if request.param == "a pool":
        monkeypatch.setattr(threads, "_openmp", lambda: None)


def recording(seen: list[int], meeting: threading.Barrier) -> Callable[[], None]:
    def task() -> None:
        meeting.wait(timeout=30)  # passes when two threads have a task at the same time
        seen.append(threading.get_native_id())

    return task


@pytest.mark.usefixtures("two_threads")
def test_two_threads_run_all_tasks() -> None:
    seen: list[int] = []
    threads.run_all([recording(seen, threading.Barrier(2))] * 6)
    assert len(seen) == 6
    assert len(set(seen)) == 2
    assert threading.get_native_id() in seen


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere torch's OpenMP has another interface")
def test_tasks_run_in_threads_that_torch_has_started(restored_threads: None) -> None:
    """A thread of ours waits for the processor while torch's wait in a loop for their next work."""
    torch.set_num_threads(2)
    torch.ones(1 << 20).add(1)
    seen: list[int] = []
    threads.run_all([recording(seen, threading.Barrier(2))] * 2)
    started_by_python = {thread.native_id for thread in threading.enumerate()}
    assert len(set(seen) - started_by_python) == 1


@pytest.mark.usefixtures("two_threads")
def test_error_of_a_task_ends_the_others_and_reaches_the_caller() -> None:
    ended, failed = [], threading.Event()

    def fail() -> None:
        failed.set()
        raise MemoryError("too large")

    def slow() -> None:
        failed.wait(timeout=30)
        time.sleep(0.05)  # the error is noted meanwhile
        ended.append(threading.get_native_id())

    with pytest.raises(MemoryError, match="too large"):
        threads.run_all([slow, fail, slow, slow, slow])
    assert len(ended) == 1  # it was awaited, and no other one began
    threads.run_all([lambda: ended.append(0)] * 3)
    assert ended[1:] == [0, 0, 0]


@pytest.mark.usefixtures("two_threads")
def test_interrupt_reaches_the_caller() -> None:
    meeting = threading.Barrier(2)

    def interrupt() -> None:
        meeting.wait(timeout=30)
        signal.raise_signal(signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        threads.run_all([interrupt] * 2)


def test_interrupt_before_the_callers_first_task_is_not_lost(monkeypatch, restored_threads: None) -> None:
    """Python then raises it in the function that OpenMP calls, before the first line, and ctypes drops it."""

    def team(work: Callable[[None], None], *_: object) -> None:
        other = threading.Thread(target=work, args=(None,))
        other.start()
        other.join()

    torch.set_num_threads(2)
    monkeypatch.setattr(threads, "_openmp", lambda: team)
    ran: list[int] = []
    with pytest.raises(KeyboardInterrupt):
        threads.run_all([lambda: ran.append(1)] * 2)
    assert ran == [1, 1]


def test_ranges_have_nearly_equal_lengths() -> None:
    assert threads.ranges(10, 3) == [(0, 3), (3, 6), (6, 10)]
    assert threads.ranges(2, 5) == [(0, 1), (1, 2)]
