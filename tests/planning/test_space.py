"""What a search draws from, as it is written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.planning.space import Range, Space

GRID = ["learning_rate=1e-4..1e-2:log", "hidden_size=64..256", "clip_norm=1,none", "(n1,rho)=(8,4),(16,2)"]


def test_axes_and_ranges_are_read():
    space = Space([*GRID, "epochs=1..8:x2"])
    assert space.axes["learning_rate"] == Range("learning_rate", 1e-4, 1e-2, whole=False, log=True)
    assert space.axes["hidden_size"] == Range("hidden_size", 64, 256, whole=True, log=False)
    assert space.axes["clip_norm"].values == ["1", "none"]
    assert space.axes["n1,rho"].values == ["8,4", "16,2"]
    assert space.axes["epochs"].values == ["1", "2", "4", "8"]
    assert space.size is None
    assert Space(GRID[1:]).size == 193 * 2 * 2


def test_real_bounds_give_a_real_range():
    assert not Space(["a=1.0..10"]).axes["a"].whole
    assert Space(["a=-1..10"]).axes["a"].whole


def test_order_of_the_axes_does_not_matter():
    assert list(Space(GRID).axes) == list(Space(GRID[::-1]).axes)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ([], "say what to search"),
        (["a=2..1"], "does not lead upwards from 2 to 1"),
        (["a=1..1"], "does not lead upwards"),
        (["a=0..1:log"], "has no logarithm at 0"),
        (["a=1..2:lg"], "is not a range"),
        (["a=1,,2"], "empty value"),
        (["(a,b)=(1,2)", "a=1..2"], "in the grid twice"),
        (["a"], "is not a setting"),
    ],
)
def test_invalid_space_is_refused(texts, message):
    with pytest.raises(UsageError, match=message):
        Space(texts)


@given(st.tuples(st.floats(1e-8, 1e8), st.floats(1e-8, 1e8)).filter(lambda ends: ends[0] < ends[1]), st.floats(0, 1))
def test_drawn_number_is_short_and_within_the_bounds(ends, share):
    low, high = ends
    axis = Range("a", low, high, whole=False, log=False)
    drawn = min(max(low + share * (high - low), low), high)
    written = axis.settings(drawn)
    assert low <= axis.value(written) <= high
    assert abs(axis.value(written) - drawn) <= 0.5001e-2 * drawn  # three digits: at most half a unit of 1.00
    assert axis.settings(axis.value(written)) == written


@given(st.integers(0, 1000))
def test_every_point_is_listed_once(seed):
    space = Space(["a=1,2,3", "b=4..5", "(c,d)=(1,x),(2,y)"])
    points = list(space.shuffled(seed))
    assert len({tuple(point.items()) for point in points}) == len(points) == space.size == 12
    assert all(space.settings(space.values(point)) == point for point in points)
    assert {(point["c"], point["d"]) for point in points} == {("1", "x"), ("2", "y")}


def test_uncountable_space_is_not_listed():
    assert list(Space(["a=1.0..2.0"]).shuffled(0)) == []
