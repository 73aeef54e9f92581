"""The seconds of a run: by phase, and the CPU seconds of all phases, which a busy machine does not add to."""

from __future__ import annotations

import time

import pytest

import orthobench as ob
from orthobench.store.result import CLOCK, CPU_SECONDS, EVENTS, times_of_phases, wall_seconds
from orthobench.training.timer import PhaseTimer

SETTINGS = {"sequence_length": 10, "train_size": 40, "test_size": 20, "batch_size": 10, "epochs": 1, "hidden_size": 8}


def test_waiting_takes_no_cpu_seconds():
    timer = PhaseTimer()
    with timer("train"):
        time.sleep(0.05)
    seconds = timer.read()
    assert seconds["train"] >= 0.05
    assert seconds[CPU_SECONDS] < seconds["train"]
    assert CLOCK not in seconds


def test_run_stores_cpu_seconds_and_leaves_them_out_of_sums(tmp_path):
    run = ob.run("adding", "rnn", settings=SETTINGS, db=tmp_path / "r.db")
    assert run.seconds[CPU_SECONDS] > 0
    phases = {name: value for name, value in run.seconds.items() if name != CPU_SECONDS}
    assert run.wall_seconds == sum(phases.values())
    with ob.open_results(tmp_path / "r.db") as results:
        assert results.runs()["seconds"].tolist() == [run.wall_seconds]


class Gpu:
    """A GPU that works off a queue; the host has a clock of its own, which waits for the GPU only where it says so."""

    def __init__(self) -> None:
        self.host = self.free_at = 0.0
        self.is_lost, self.waits = False, 0

    def queue(self, seconds: float) -> None:
        self.free_at = max(self.free_at, self.host) + seconds

    def wait(self) -> None:
        self.waits += 1
        self.host = max(self.host, self.free_at)

    def event(self) -> Event:
        return Event(self)


class Event:
    def __init__(self, gpu: Gpu) -> None:
        self.gpu, self.reached_at = gpu, 0.0

    def record(self) -> None:
        if self.gpu.is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.gpu.queue(0)
        self.reached_at = self.gpu.free_at

    def synchronize(self) -> None:
        if self.gpu.is_lost:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        self.gpu.wait()

    def elapsed_time(self, end: Event) -> float:
        return 1000 * (end.reached_at - self.reached_at)


def trained(gpu: Gpu, timer: PhaseTimer, steps: int = 10) -> None:
    """Steps of 3 seconds that the host queues in 0.01, and a test of 2 seconds that it waits for."""
    for _ in range(steps):
        with timer("train"):
            gpu.queue(3)
            gpu.host += 0.01
    with timer("test"):
        gpu.queue(2)
        gpu.wait()
    with timer("log"):
        gpu.host += 0.5


def test_queued_work_counts_in_the_phase_that_queued_it():
    gpu = Gpu()
    timer = PhaseTimer(gpu.event)
    for _ in range(2):
        trained(gpu, timer)
    assert gpu.waits == 2  # those of the tests: the timer has added none
    seconds = timer.read()
    assert times_of_phases(seconds, "cuda") == pytest.approx({"train": 60, "test": 4, "log": 1})
    assert seconds[CLOCK] == EVENTS
    assert wall_seconds(seconds) == pytest.approx(gpu.host)
    trained(gpu, timer, steps=1)
    assert times_of_phases(timer.read(), "cuda") == pytest.approx({"train": 63, "test": 6, "log": 1.5})


def test_seconds_of_a_checkpoint_keep_their_clock():
    gpu = Gpu()
    first, second, old = PhaseTimer(gpu.event), PhaseTimer(gpu.event), PhaseTimer(gpu.event)
    trained(gpu, first)
    second.restore(first.read())
    trained(gpu, second)
    assert times_of_phases(second.read(), "cuda") == pytest.approx({"train": 60, "test": 4, "log": 1})
    assert second.read()[CLOCK] == EVENTS
    old.restore({"train": 1.0, "test": 31.0, CPU_SECONDS: 2.0})  # of a version that measured with the host's clock
    trained(gpu, old)
    assert CLOCK not in old.read()
    assert old.read()["train"] == pytest.approx(31)


def test_error_of_the_gpu_is_not_hidden_by_the_timer():
    gpu = Gpu()
    timer = PhaseTimer(gpu.event)
    trained(gpu, timer)
    timer.read()

    def fail() -> None:
        with timer("train"):
            gpu.is_lost = True
            raise ValueError("the fault")

    with pytest.raises(ValueError, match="the fault"):
        fail()
    seconds = timer.read()
    assert seconds["train"] == pytest.approx(30)
    assert CLOCK not in seconds
