from __future__ import annotations

import time

import pytest

from orthobench.bench.measure import CpuClock, Sample, SystemClock, interleave, ratio, summarise


class FakeClock(SystemClock):
    """Time passes only in steps; of two cores, others use as many as they are told."""

    cores = 2

    def __init__(self) -> None:
        self.time = self.busy = self.others = 0.0
        self.calls: list[str] = []

    def now(self) -> float:
        return self.time

    def foreign(self) -> float:
        return self.busy

    def step(self, name: str, *seconds: float):
        """A step that takes each of these times in turn, then the last one again."""
        left = list(seconds)

        def run() -> None:
            spent = left.pop(0) if len(left) > 1 else left[0]
            self.calls.append(name)
            self.time += spent
            self.busy += self.others * spent

        return run


def test_steps_alternate_and_the_first_two_are_dropped():
    clock = FakeClock()
    steps = {"a": clock.step("a", 9, 1, 1, 5, 2), "b": clock.step("b", 3)}
    samples = interleave(steps, 3, clock, shortest=0, patience=100)
    assert clock.calls == [*"aabb", *("a", "b") * 3]
    assert [sample.seconds for sample in samples["a"]] == [1, 5, 2]
    assert summarise(samples["a"]).seconds == 2
    assert summarise(samples["a"]).spread == 2
    assert summarise(samples["b"]) == summarise([Sample(3, 0)] * 3)


def test_untimed_step_may_precede_each_sample():
    clock = FakeClock()
    steps = {"a": clock.step("a", 9, 1, 7, 1, 7, 1), "b": clock.step("b", 3)}
    samples = interleave(steps, 2, clock, shortest=0, patience=100, warm=True)
    assert clock.calls == [*"aabb", *"aabb" * 2]
    assert [sample.seconds for sample in samples["a"]] == [1, 1]


def test_short_steps_are_repeated_and_counted_singly():
    clock = FakeClock()
    samples = interleave({"a": clock.step("a", 0.125)}, 2, clock, shortest=1)
    assert len(clock.calls) == 2 + 2 * 8
    assert [sample.seconds for sample in samples["a"]] == [0.125, 0.125]


@pytest.mark.parametrize(("seconds", "n", "calls"), [(1, 5, 7), (8, 2, 4), (19, 1, 3), (21, 1, 1)])
def test_slow_steps_are_timed_less_often(seconds, n, calls):
    clock = FakeClock()
    samples = interleave({"a": clock.step("a", seconds)}, 5, clock, patience=20)
    assert summarise(samples["a"]).n == n
    assert clock.calls.count("a") == calls


def test_load_of_other_processes_is_a_share_of_all_cores():
    clock = FakeClock()
    clock.others = 0.5
    samples = interleave({"a": clock.step("a", 4)}, 1, clock)
    assert samples["a"] == [Sample(4, 0.25)]


def test_ratios_compare_the_same_round():
    """The machine slows down threefold: both medians change, their ratio does not."""
    actual, eager = [Sample(s, 0) for s in (1, 1, 3, 3)], [Sample(s, 0) for s in (4, 4, 12, 12)]
    assert ratio(eager, actual) == 4
    assert ratio(eager[:1], actual) == 4
    disturbed = [Sample(100, 0.9), *eager[1:]]
    assert ratio(disturbed, actual) == 4


def test_disturbed_samples_are_dropped_if_enough_remain():
    quiet, loud = [Sample(1, 0.0), Sample(2, 0.1), Sample(3, 0.0)], [Sample(50, 0.5)]
    assert summarise(quiet + loud) == summarise(quiet)
    few = summarise(quiet[:2] + loud)
    assert (few.n, few.seconds) == (3, 2)


def test_waiting_takes_no_cpu_time():
    """A step that waits for another process, as on a busy machine."""
    (sample,) = interleave({"wait": lambda: time.sleep(0.05)}, 1, CpuClock(), shortest=0)["wait"]
    assert sample.seconds < 0.05
    assert sample.foreign == 0
