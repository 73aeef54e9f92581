"""Grids: what is written is what is run, each point once."""

from __future__ import annotations

import itertools
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.options.assignments import parse_assignments
from orthobench.planning.grid import GridAxis, combinations, read_grid
from orthobench.planning.sweep_runs import resolve_grid
from orthobench.plugins import Catalog

CATALOG = Catalog()
names = st.text("abcdefgh_", min_size=1, max_size=8)
value = st.text("0123456789e-", min_size=1, max_size=5)


def parse_grid(texts):
    """Read the axes as `orthobench sweep --grid` does."""
    return read_grid(parse_assignments(texts))


@st.composite
def axes(draw, most=4):
    """Axes, each of one setting or of several, no name and no point twice."""
    remaining = draw(st.lists(names, min_size=0, max_size=most, unique=True))
    drawn_axes = []
    while remaining:
        width = draw(st.integers(1, len(remaining)))
        points = draw(st.lists(st.tuples(*[value] * width), min_size=1, max_size=4, unique=True))
        drawn_axes.append((tuple(remaining[:width]), tuple(points)))
        remaining = remaining[width:]
    return drawn_axes


def written(bound, points, space=""):
    """An axis as on the command line."""
    comma = f"{space},{space}"
    if len(bound) == 1:
        return bound[0], comma.join(point[0] for point in points)
    return f"({comma.join(bound)})", comma.join(f"({comma.join(point)})" for point in points)


@given(axes(), st.sampled_from(["", " "]))
def test_grid_round_trips_and_is_combined_completely(drawn_axes, space):
    parsed = parse_grid([f"{key}={text}" for key, text in (written(*axis, space) for axis in drawn_axes)])
    assert [(axis.names, axis.points) for axis in parsed] == drawn_axes
    every = [name for bound, _ in drawn_axes for name in bound]
    assert combinations(parsed) == [
        dict(zip(every, itertools.chain(*points), strict=True))
        for points in itertools.product(*(p for _, p in drawn_axes))
    ]


@given(axes())
def test_file_and_command_line_give_the_same_grid(drawn_axes):
    """As the command line's text, and as lists."""
    texts = dict(written(*axis) for axis in drawn_axes)
    lists = {
        written(bound, points)[0]: [list(point) if len(bound) > 1 else point[0] for point in points]
        for bound, points in drawn_axes
    }
    assert read_grid(texts) == read_grid(lists) == parse_grid([f"{key}={text}" for key, text in texts.items()])


@given(st.integers(1, 500), st.integers(0, 500), st.integers(1, 60))
def test_additive_range_equals_pythons_range(first, more, step):
    (axis,) = parse_grid([f"n={first}..{first + more}:+{step}"])
    assert [int(point[0]) for point in axis.points] == list(range(first, first + more + 1, step))


@given(st.integers(1, 40), st.integers(1, 4000), st.sampled_from(["2", "10", "1.5", "1.25"]))
def test_geometric_range_has_every_power_up_to_the_end(first, last, factor):
    last = max(first, last)
    (axis,) = parse_grid([f"n={first}..{last}:x{factor}"])
    powers = (first * Fraction(factor) ** k for k in itertools.count())
    expected = list(itertools.takewhile(lambda power: power <= last, powers))
    for (text,), exact in zip(axis.points, expected, strict=True):
        assert abs(Fraction(text) - exact) <= exact / 10**11  # twelve digits
        assert exact.denominator > 1 or text == str(exact)  # whole where it is


@given(st.integers(-9, 9), st.integers(-9, 9))
def test_decimal_powers_are_exact_both_ways(low, high):
    low, high = min(low, high), max(low, high)
    (up,) = parse_grid([f"a=1e{low}..1e{high}:x10"])
    (down,) = parse_grid([f"a=1e{high}..1e{low}:x0.1"])
    assert [Fraction(point[0]) for point in up.points] == [Fraction(10) ** k for k in range(low, high + 1)]
    assert up.points == down.points[::-1]


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("hidden_size=128..512:x2", ["128", "256", "512"]),
        ("hidden_size=100,128..512:x2,600..700:+100", ["100", "128", "256", "512", "600", "700"]),
        ("negative_ones=0.5..1:+0.25", ["0.5", "0.75", "1.0"]),  # the last is a share of the units as well
        ("learning_rate=1e-3,1e-4", ["1e-3", "1e-4"]),  # as it was written
        ("learning_rate=1e-4..1e-8:x.01", ["0.0001", "0.000001", "1e-8"]),
        ("text=../one.txt,../two.txt", ["../one.txt", "../two.txt"]),
    ],
)
def test_ranges_and_values_mix(text, values):
    assert [point[0] for point in parse_grid([text])[0].points] == values


BAD = {
    "hidden_size": "is not a setting",
    "hidden_size=": "is not a setting",
    "=1,2": "is not a setting",
    "hidden_size=1,,2": "has an empty value",
    "a=,": "has an empty value",
    "hidden_size=1,1": "names a value twice: 1",
    "hidden_size=128,64..128:x2": "names a value twice: 128",
    "a=1..3": "is not a range: write",
    "a=1..3:2": "is not a range: write",
    "a=1..:x2": "is not a range: write",
    "a=3..1:+1": "does not lead from 3 to 1",
    "a=1..3:x1": "does not lead from 1 to 3",
    "a=1..3:x0.5": "does not lead",
    "a=0..3:x2": "does not lead",
    "a=1..3:+0": "does not lead",
    "a=1..1e9:+1": "more than 10000 values",
    "(n,rho)=170,17": "should have its values in brackets: write (n,rho)=(n1,rho1),...",
    "(n,rho)=(170,17),(360)": "(360) should have 2 values",
    "(n,rho)=(170,17),(170,17)": "names a value twice: 170,17",
    "(n,rho)=(170,)": "has an empty value",
    "(n,n)=(1,2)": "should name each setting once",
    "(n,)=(1,2)": "should name each setting once",
    "(n,rho=(1,2)": "should be a setting, or several in brackets",
}


@pytest.mark.parametrize(("text", "message"), BAD.items())
def test_meaningless_grids_are_refused(text, message):
    with pytest.raises(UsageError) as refused:
        parse_grid([text])
    assert message in str(refused.value)


@given(st.text("ab1.29,()=x+-: ", max_size=25))
def test_any_text_is_read_or_refused(text):
    try:
        (axis,) = parse_grid([text])
    except UsageError:
        return
    assert axis.points
    assert all(len(point) == len(axis.names) and all(point) for point in axis.points)


def test_sweep_runs_every_model_before_the_next_seed():
    grid = parse_grid(["hidden_size=4..8:x2"])
    runs = resolve_grid(CATALOG, "adding", ["rnn", "lstm"], {}, grid, range(2), "quick")
    order = [(r.spec.seed, r.spec.model, r.spec.model_settings["hidden_size"]) for r, _ in runs]
    assert order == [(seed, model, n) for seed in (0, 1) for model in ("rnn", "lstm") for n in (4, 8)]
    assert len({r.spec.key for r, _ in runs}) == 8


def test_symbols_of_the_papers_name_settings():
    short = resolve_grid(CATALOG, "adding", ["scornn"], {}, parse_grid(["(n,rho)=(170,17),(360,36)"]), [0], "paper")
    long = parse_grid(["(hidden_size,negative_ones)=(170,17),(360,36)"])
    assert [config.spec for config, _ in short] == [
        config.spec for config, _ in resolve_grid(CATALOG, "adding", ["scornn"], {}, long, [0], "paper")
    ]
    sizes = [(r.spec.model_settings["hidden_size"], r.spec.model_settings["negative_ones"]) for r, _ in short]
    assert sizes == [(170, 17), (360, 36)]


@pytest.mark.parametrize(
    ("overrides", "grid", "message"),
    [
        ({}, ["learning_rate=1e-3,0.001"], "two points of the grid are the same run"),
        ({"epochs": "1"}, ["epochs=1,2"], "epochs is both set and in the grid"),
        ({}, ["n=1,2", "(n,rho)=(3,1)"], "n is in the grid twice"),
        ({}, ["n=1,2", "hidden_size=3"], "hidden_size is given twice"),
        ({"n": "3"}, ["hidden_size=1,2"], "hidden_size is given twice"),
        ({}, ["(hidden_sise,rho)=(1,2)"], "did you mean hidden_size?"),
    ],
)
def test_duplicate_grid_entries_are_refused(overrides, grid, message):
    with pytest.raises(UsageError, match=message):
        resolve_grid(CATALOG, "adding", ["scornn"], overrides, parse_grid(grid), [0], "paper")


def test_axis_with_missing_values_is_refused():
    with pytest.raises(UsageError, match="should have 2 values"):
        GridAxis(("a", "b"), (("1",),))
