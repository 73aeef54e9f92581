"""Thinned curves keep their ends and their peaks."""

import numpy as np

from orthobench.reporting.decimate import thinned


def test_short_curves_are_whole():
    assert thinned([np.arange(400.0)]).tolist() == list(range(400))


def test_peaks_and_ends_of_every_curve_stay():
    first, second = np.zeros(10_000), np.ones(10_000)
    first[1234], first[1236], second[777] = 5.0, -3.0, 9.0
    second[50] = np.nan
    points = thinned([first, second], limit=200)
    assert len(points) <= 202
    assert {0, 777, 1234, 1236, 9_999} <= set(points.tolist())
    assert points.tolist() == sorted(points.tolist())


def test_what_is_not_finite_is_no_peak():
    values = np.full(1_000, np.nan)
    assert thinned([values], limit=100).tolist() == [0, 999]
