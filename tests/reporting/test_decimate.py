"""Thinned curves keep their ends and their peaks."""

import numpy as np
import pytest

from orthobench.reporting.figures.decimate import FIRST, thinned


def test_short_curves_are_kept_completely():
    for count in (0, 1, 400):
        assert thinned(np.arange(float(count)), 400).tolist() == list(range(count))


def test_peaks_ends_and_first_points_are_kept():
    values = np.zeros(10_000)
    values[1234], values[1236], values[50] = 5.0, -3.0, np.nan
    points = thinned(values, limit=200)
    assert len(points) <= 200
    assert {*range(FIRST), 1234, 1236, 9_999} <= set(points.tolist())
    assert points.tolist() == sorted(points.tolist())


@pytest.mark.parametrize("count", [25, 101, 1_000, 1_500])
@pytest.mark.parametrize("limit", [4, 24, 64])
def test_every_interval_keeps_its_extremes(count, limit):
    draw = np.random.default_rng(count)
    values = np.where(draw.random(count) < 0.3, draw.choice([np.nan, np.inf, -np.inf], count), draw.normal(size=count))
    points = thinned(values, limit)
    assert set(points.tolist()) <= set(range(count))
    if count > limit:
        assert len(points) <= limit
        length = -(-count // max(1, (limit - min(FIRST, limit // 4) - 1) // 2))
        for start in range(0, count, length):
            inside = points[(points >= start) & (points < start + length)]
            finite = values[start : start + length][np.isfinite(values[start : start + length])]
            if len(finite):
                known = values[inside][np.isfinite(values[inside])]
                assert (known.min(), known.max()) == (finite.min(), finite.max())


def test_curve_without_a_number_keeps_its_ends():
    points = thinned(np.full(1_000, np.nan), limit=100)
    assert {*range(FIRST), 999} <= set(points.tolist())
    assert len(points) <= 100
