"""Thinned curves keep their ends and their peaks; a picture's lines pass every point."""

import numpy as np
import pytest

from orthobench.reporting.figures.decimate import COLUMN, ERROR, FIRST, WHOLE, thinned_curves, visible


def thinned(values, limit):
    """The indices of the points of one curve."""
    return thinned_curves(values, np.array([0, len(values)]), limit)[0]


def test_short_curves_are_kept_completely():
    assert thinned(np.arange(400.0), 400).tolist() == list(range(400))


def test_peaks_ends_and_first_points_are_kept():
    values = np.zeros(10_000)
    values[1234], values[1236], values[50] = 5.0, -3.0, np.nan
    points = thinned(values, limit=200)
    assert len(points) <= 200
    assert {*range(FIRST), 1234, 1236, 9_999} <= set(points.tolist())
    assert points.tolist() == sorted(points.tolist())


def test_non_finite_value_is_not_a_peak():
    values = np.full(1_000, np.nan)
    assert thinned(values, limit=100).tolist() == [*range(FIRST), 999]


def test_straight_line_has_two_points_and_a_gap_splits_it():
    across = np.arange(100.0)
    assert visible(across, 3 * across).tolist() == [0, 99]
    up = 3 * across
    up[[40, 41]] = np.nan
    assert visible(across, up).tolist() == [0, 39, 40, 41, 42, 99]
    assert visible(across, np.full(100, np.nan)).tolist() == list(range(100))
    assert visible(across[:0], up[:0]).tolist() == []


@pytest.mark.parametrize("count", [2, 60, WHOLE])
@pytest.mark.parametrize("noise", [0.1, 1.0, 30.0])
def test_drawn_line_stays_within_the_error_of_every_point(count, noise):
    draw = np.random.default_rng(count)
    across = np.sort(draw.uniform(0, 1300, count))
    up = 300 * np.exp(-across / 100) + draw.uniform(-noise, noise, count)
    points = visible(across, up)
    assert np.abs(np.interp(across, across[points], up[points]) - up).max() <= ERROR + 1e-9
    assert noise > 0.1 or len(points) < max(count / 3, 3)


def test_each_pixel_column_keeps_its_extremes():
    draw = np.random.default_rng(0)
    across, up = np.linspace(0, 100, 20_000), 1e6 * draw.normal(size=20_000)
    points = visible(across, up)
    assert len(points) < 250
    columns = np.floor_divide(across, COLUMN)
    for column in np.unique(columns):
        own = up[points][columns[points] == column]
        assert (own.min(), own.max()) == (up[columns == column].min(), up[columns == column].max())


def test_vertical_line_keeps_both_ends():
    across, up = np.array([0.0, 1.0, 1.0, 1.0, 2.0]), np.array([0.0, 0.0, 50.0, 100.0, 100.0])
    assert {1, 3} <= set(visible(across, up).tolist())
