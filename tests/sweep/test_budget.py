"""Runs within a time."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.sweep.budget import Budget, by_priority, parse_duration, show_duration, within
from orthobench.sweep.estimate import Estimate


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("8h", 28_800),
        ("90m", 5_400),
        ("1h30m", 5_400),
        ("1h 30m", 5_400),
        ("2d", 172_800),
        ("1.5h", 5_400),
        ("45s", 45),
    ],
)
def test_times_as_one_writes_them(text, seconds):
    assert parse_duration(text) == seconds


@pytest.mark.parametrize("text", ["", "8", "h", "8x", "0h", "30m1h", "-1h", "1h30", "1,5h", "eight hours"])
def test_what_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="write 8h, 90m or 1h30m"):
        parse_duration(text)


@given(st.integers(1, 10**7))
def test_a_time_shown_is_read_back_to_its_second_unit(seconds):
    back = parse_duration(show_duration(seconds))
    unit = 1 if seconds < 3_600 else 60 if seconds < 86_400 else 3_600
    assert 0 <= seconds - back < unit


class One:
    """A planned run, as far as a budget looks at it."""

    def __init__(self, key, state="missing"):
        self.key, self.state = key, state
        self.is_wanted = state not in ("finished", "running")
        self.resolved = self
        self.spec = self


def keys(runs):
    return [one.key for one in runs]


def test_what_was_begun_comes_first_and_what_failed_last():
    states = ["failed", "missing", "finished", "stale", "interrupted", "missing", "running", "interrupted"]
    assert keys(by_priority([One(n, state) for n, state in enumerate(states)])) == [4, 7, 1, 3, 5, 0]


def estimates(*seconds):
    return {n: Estimate(one, None, "") for n, one in enumerate(seconds)}


@pytest.mark.parametrize(
    ("budget", "at_once", "taken"),
    [
        (100, 1, [0, 1, 2, 3]),
        (60, 1, [0, 1, 2]),
        (45, 1, [0, 1]),
        (25, 1, [0, 3]),  # the second does not fit, the last does
        (9, 1, []),
        (30, 2, [0, 1, 2]),  # ten and thirty, twenty beside the thirty
        (40, 2, [0, 1, 2, 3]),
    ],
)
def test_what_fits_is_taken_in_order(budget, at_once, taken):
    runs = [One(n) for n in range(4)]
    assert keys(within(runs, estimates(10, 30, 20, 15), budget, at_once)) == taken


def test_a_run_of_which_nothing_is_known_is_left_out():
    assert keys(within([One(0), One(1)], estimates(None, 3), 10)) == [1]


@given(st.lists(st.floats(0.1, 100), max_size=8), st.floats(1, 300), st.integers(1, 4))
def test_no_more_is_taken_than_fits(seconds, budget, at_once):
    """The longest, and the sum over all places; and one place alone takes whatever still fits."""
    known = estimates(*seconds)
    taken = keys(within([One(n) for n in known], known, budget, at_once))
    assert sum(seconds[n] for n in taken) <= at_once * budget * (1 + 1e-12)
    if at_once == 1:
        left = budget - sum(seconds[n] for n in taken)
        assert all(seconds[n] > left - 1e-9 for n in known if n not in taken)


def test_a_budget_is_spent_when_its_time_is_over():
    now = [5.0]
    budget = Budget(10.0, lambda: now[0])
    assert not budget.is_spent()
    now[0] = 14.9
    assert not budget.is_spent()
    now[0] = 15.0
    assert budget.is_spent()
