"""A model's score over tasks, against SciPy's bootstrap, and against the truth in simulations."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import bootstrap, t

from orthobench.analysis.overall import Overall, overall
from orthobench.analysis.statistics import DRAWS


@pytest.mark.parametrize("sizes", [(3, 3, 3), (5, 5, 5, 5, 5), (3, 5, 4, 3), (2, 9), (6,)])
def test_score_and_interval_match_scipy(sizes):
    """SciPy's bootstrap of several samples draws from each alone. The factor is that of Student's interval."""
    random = np.random.default_rng(len(sizes))
    columns = [random.uniform(0.4, 0.6, size) for size in sizes]

    def mean_of_means(*parts, axis):
        return sum(part.mean(axis=axis) for part in parts) / len(parts)

    interval = bootstrap(columns, mean_of_means, n_resamples=DRAWS, method="percentile", rng=0).confidence_interval
    found, value, fewest = overall(columns), sum(column.mean() for column in columns) / len(columns), min(sizes)
    wider = t.ppf(0.975, sum(sizes) - len(sizes)) / 1.959964 * math.sqrt(fewest / (fewest - 1))
    assert (found.value, found.columns, found.seeds) == (pytest.approx(value), len(sizes), fewest)
    assert found.low == pytest.approx(value - wider * (value - interval.low), rel=1e-6)
    assert found.high == pytest.approx(value + wider * (interval.high - value), rel=1e-6)


def test_score_by_hand():
    """The mean of 0.2 and 0.8: every column counts alike, whatever the number of its seeds."""
    found = overall([[0.0, 0.1, 0.3, 0.4], [0.7, 0.9]])
    assert found.value == pytest.approx(0.5)
    assert 0 <= found.low < 0.5 < found.high <= 1
    assert str(found) == f"0.5 [{found.low:.3g}, {found.high:.3g}]"


def test_failed_task_costs_its_share():
    """An interquartile mean of these four columns would be 1."""
    found = overall([[1.0] * 3, [1.0] * 3, [1.0] * 3, [0.0] * 3])
    assert (found.value, found.low, found.high) == (0.75, 0.75, 0.75)


def test_missing_and_single_seeds():
    assert overall([]) is None
    assert overall([[], []]) is None
    assert overall([[0.5], [], [0.7, 0.9]]) == Overall(pytest.approx(0.65), 2, 1)
    assert str(overall([[0.5]])) == "0.5"
    assert overall([[0.5] * 3, [0.5] * 3]) == Overall(0.5, 2, 3, 0.5, 0.5)


def test_order_of_columns_does_not_change_the_score():
    columns = [[0.1, 0.2, 0.3], [0.4, 0.5, 0.6], [0.7, 0.8, 0.9]]
    assert overall(columns).value == pytest.approx(overall(columns[::-1]).value)


@pytest.mark.parametrize("score", [-math.inf, math.nan, -1.1, 1.1])
def test_score_outside_the_scale_is_refused(score):
    with pytest.raises(ValueError, match="give a run that diverged the score -1"):
        overall([[0.5, 0.6], [0.7, score]])


@pytest.mark.slow
@pytest.mark.parametrize(("seeds", "least"), [(3, 0.92), (5, 0.92), (10, 0.92)])
def test_interval_covers_the_score_of_many_seeds(seeds, least):
    """Five tasks, each with its own spread. Without the factor, intervals of three seeds cover it in 85 %."""
    random = np.random.default_rng(3)
    middles = np.linspace(0.1, 0.95, 5)

    def draw(count: int) -> list[np.ndarray]:
        return [random.beta(12 * middle, 12 * (1 - middle), count) for middle in middles]

    truth = np.mean([column.mean() for column in draw(40_000)])
    found = [overall(draw(seeds)) for _ in range(1_500)]
    assert sum(each.low <= truth <= each.high for each in found) / 1_500 >= least
