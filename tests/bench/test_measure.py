from __future__ import annotations

import time

import pytest

from orthobench.bench.measure import CPU, interleave, ratio, summarise


class FakeClock:
    """Time passes only in steps."""

    def __init__(self) -> None:
        self.time = 0.0
        self.calls: list[str] = []

    def __call__(self) -> float:
        return self.time

    def step(self, name: str, *seconds: float):
        """A step that takes each of these times in turn, then the last one again."""
        left = list(seconds)

        def run() -> None:
            self.calls.append(name)
            self.time += left.pop(0) if len(left) > 1 else left[0]

        return run


def test_steps_alternate_and_the_first_two_are_dropped():
    clock = FakeClock()
    steps = {"a": clock.step("a", 9, 1, 1, 5, 2), "b": clock.step("b", 3)}
    samples = interleave(steps, 3, clock, shortest=0, patience=100)
    assert clock.calls == [*"aabb", *("a", "b") * 3]
    assert samples["a"] == [1, 5, 2]
    assert summarise(samples["a"]).seconds == 2
    assert summarise(samples["a"]).spread == 2
    assert summarise(samples["b"]) == summarise([3.0] * 3)


def test_untimed_step_may_precede_each_sample():
    clock = FakeClock()
    steps = {"a": clock.step("a", 9, 1, 7, 1, 7, 1), "b": clock.step("b", 3)}
    samples = interleave(steps, 2, clock, shortest=0, patience=100, warm=True)
    assert clock.calls == [*"aabb", *"aabb" * 2]
    assert samples["a"] == [1, 1]


def test_short_steps_are_repeated_and_counted_singly():
    clock = FakeClock()
    samples = interleave({"a": clock.step("a", 0.125)}, 2, clock, shortest=1)
    assert len(clock.calls) == 2 + 2 * 8
    assert samples["a"] == [0.125, 0.125]


@pytest.mark.parametrize(("seconds", "n", "calls"), [(1, 5, 7), (8, 2, 4), (19, 1, 3), (21, 1, 1)])
def test_slow_steps_are_timed_less_often(seconds, n, calls):
    clock = FakeClock()
    samples = interleave({"a": clock.step("a", seconds)}, 5, clock, patience=20)
    assert summarise(samples["a"]).n == n
    assert clock.calls.count("a") == calls


def test_ratios_compare_the_same_round():
    """The machine slows down threefold: both medians change, their ratio does not."""
    actual, eager = [1.0, 1.0, 3.0, 3.0], [4.0, 4.0, 12.0, 12.0]
    assert ratio(eager, actual) == 4
    assert ratio(eager[:1], actual) == 4


def test_waiting_takes_no_cpu_time():
    """A step that waits for another process, as on a busy machine."""
    (sample,) = interleave({"wait": lambda: time.sleep(0.05)}, 1, CPU, shortest=0)["wait"]
    assert sample < 0.05
