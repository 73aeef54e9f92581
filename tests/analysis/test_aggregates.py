"""Numbers over seeds, made as print makes them, against numbers made by hand."""

from __future__ import annotations

import math
import statistics

import numpy as np
import pytest
from pydantic import ValidationError
from scipy.stats import t

from orthobench.analysis.aggregates import Basis, PublishedTarget, agreement_basis, chance_level, scaled
from orthobench.analysis.aggregates import aggregate as aggregate_and_judge
from orthobench.analysis.statistics import agreement_within, best_of
from orthobench.metric import Metric
from orthobench.papers import Aggregation

ACCURACY = Metric("accuracy", "max", is_fraction=True)
LOSS = Metric("mse", "min")
VALUES = [0.6, 0.9, 0.7, 1.0]


def aggregate(*arguments):
    result = aggregate_and_judge(*arguments)
    return result and result[0]


@pytest.mark.parametrize(
    ("how", "metric", "n", "value", "words"),
    [
        ({}, ACCURACY, 4, 0.8, ""),
        ({"over": "mean", "seeds": 5}, ACCURACY, 4, 0.8, "mean of 4 (published: mean of 5)"),
        ({"over": "median"}, ACCURACY, 4, 0.8, "median of 4"),
        ({"over": "best", "seeds": 3}, ACCURACY, 3, 0.9, "best of 3"),
        ({"over": "best", "seeds": 3}, LOSS, 3, 0.6, "best of 3"),
        ({"over": "best", "seeds": 5}, ACCURACY, 4, 1.0, "best of 4 (published: best of 5)"),
        ({"over": "best", "seeds": 1}, ACCURACY, 1, 0.6, "one seed"),
        ({"over": "best", "seeds": 3, "scaled": True}, ACCURACY, 3, 0.9, "best of 3, scaled"),
    ],
)
def test_number_over_seeds_follows_the_stated_aggregation(how, metric, n, value, words):
    number = aggregate(VALUES, Aggregation(**how), metric)
    assert (number.n, number.words) == (n, words)
    assert number.value == pytest.approx(value)


def test_deviation_of_four_values_by_hand():
    """Of 0.6, 0.9, 0.7 and 1.0 the squares of the distances from 0.8 sum up to 0.1."""
    sample, population = (
        aggregate(VALUES, Aggregation(over="mean", seeds=4, deviation=kind), ACCURACY)
        for kind in ("sample", "population")
    )
    assert sample.deviation == pytest.approx(math.sqrt(0.1 / 3))
    assert population.deviation == pytest.approx(math.sqrt(0.1 / 4))
    assert sample.words == "mean of 4, sample deviation 0.18"
    assert aggregate([0.5], Aggregation(deviation="sample"), ACCURACY).deviation is None


def test_diverged_run_counts_in_best_of_k_and_not_in_the_mean():
    values = [-math.inf, 0.9, 0.7, 1.0]
    assert aggregate(values, Aggregation(over="best", seeds=2), ACCURACY).value == 0.9
    assert aggregate(values, Aggregation(over="median"), ACCURACY).value == pytest.approx(0.8)
    assert aggregate(values, Aggregation(), ACCURACY).n == 3
    assert aggregate([-math.inf], Aggregation(), ACCURACY) is None


def test_interval_of_the_best_of_k_matches_a_bootstrap():
    """Of three values, the best of three draws is at least the middle one with the probability 1 - 1 / 27."""
    assert best_of([0.5, 0.9, 0.7], 3, -1.0, 0.1) == (0.7, 0.9)
    assert best_of([0.5, 0.9, 0.7], 1, -1.0, 0.1) == (0.5, 0.9)
    assert best_of([3.0, 1.0, 2.0], 3, 1.0, 0.1) == (1.0, 2.0)
    generator = np.random.default_rng(0)
    values = generator.normal(size=9).round(2)
    draws = generator.choice(values, (200_000, 4)).max(axis=1)
    assert best_of(values.tolist(), 4, -1.0, 0.1) == tuple(np.percentile(draws, (5, 95), method="inverted_cdf"))


@pytest.mark.parametrize(
    ("values", "how", "target", "expected"),
    [
        ([0.97, 0.972, 0.971], {"over": "best", "seeds": 3}, 0.971, "agrees"),
        ([0.9, 0.902, 0.901], {"over": "best", "seeds": 3}, 0.971, "differs"),
        ([0.5, 0.6, 0.55], {"over": "best", "seeds": 3}, 0.971, "too wide to say"),
        ([0.5, 0.97, 0.55], {"over": "best", "seeds": 3}, 0.971, "too wide to say"),
        ([0.96, 0.97, 0.965], {"over": "best", "seeds": 3}, 0.971, "undecided"),
        ([0.97, 0.972], {"over": "best", "seeds": 3}, 0.971, "undecided"),
        ([0.97, 0.972, 0.971], {"over": "median"}, 0.971, "undecided"),
        ([0.97, 0.972, 0.971, 0.97, 0.971], {"over": "median"}, 0.971, "agrees"),
        ([0.97, 0.971, 0.972], {}, 0.971, "agrees"),
        ([0.95, 0.97, 0.96, 0.97, 0.95], {"over": "mean", "seeds": 5}, 0.979, "differs"),
        ([0.95, 0.97, 0.96, 0.97, 0.95], {"over": "mean", "seeds": 1}, 0.979, "too wide to say"),
        ([0.9694, 0.9703, 0.9494], {"over": "mean", "seeds": 1}, 0.973, "too wide to say"),
        ([0.1, 0.5, 0.97], {}, 0.971, "too wide to say"),
        ([0.5, 0.55, 0.6], {}, 0.971, "too wide to say"),
        ([0.5, 0.501, 0.502], {}, 0.971, "differs"),
        ([0.5, -math.inf, 0.97], {}, 0.971, "undecided"),
        ([0.1, 0.97], {}, 0.971, "undecided"),
        ([0.97, 0.971, 0.972], {"over": "mean", "seeds": 1}, 0.971, "within the spread"),
        ([0.95, 0.951, 0.952], {"over": "mean", "seeds": 1}, 0.979, "outside the spread"),
    ],
)
def test_verdict_for_each_aggregation(values, how, target, expected):
    _, agreement = aggregate_and_judge(values, Aggregation(**how), ACCURACY, PublishedTarget(target, 0.005))
    assert agreement == expected


@pytest.mark.parametrize("target", [0.0, 0.5, 0.55, 0.6, 0.971, 50.0])
@pytest.mark.parametrize(
    ("values", "how"),
    [
        ([0.5, 0.55, 0.6], {}),
        ([0.5, 0.55, 0.6], {"over": "mean", "seeds": 5}),
        ([0.5, 0.55, 0.6], {"over": "mean", "seeds": 1}),
        ([0.5, 0.55, 0.6], {"over": "best", "seeds": 3}),
        ([0.5, 0.55, 0.6, 0.52, -math.inf], {"over": "median"}),
    ],
)
def test_wide_spread_has_no_verdict_whatever_was_published(values, how, target):
    _, agreement = aggregate_and_judge(values, Aggregation(**how), ACCURACY, PublishedTarget(target, 0.005))
    assert agreement == "too wide to say"


def test_published_deviation_leaves_the_verdict_to_the_test():
    """Our mean is known within four tolerances, so their ± 0.03 makes numbers undecided, and refutes far ones."""
    for printed, expected in ((0.97, "undecided"), (0.8, "differs")):
        target = PublishedTarget(printed, 0.005, error=0.03)
        how = Aggregation(over="mean", seeds=5)
        assert aggregate_and_judge([0.969, 0.972, 0.975], how, ACCURACY, target)[1] == expected


@pytest.mark.parametrize("n", [3, 5, 20])
@pytest.mark.parametrize("target", [0.0, 1.0, 90.0])
def test_spread_of_runs_decides_next_to_a_single_one(n, target):
    """With tolerance 1, 90 % of runs of deviation 4 / 3.289707 are within 4; the number of seeds does not matter."""
    for factor, is_wide in ((0.999, False), (1.001, True)):
        values = np.linspace(-1, 1, n)
        values *= factor * 4 / (2 * 1.6448536 * values.std(ddof=1))
        how = Aggregation(over="mean", seeds=1)
        _, agreement = aggregate_and_judge(values.tolist(), how, LOSS, PublishedTarget(target, 1.0))
        assert (agreement == "too wide to say") == is_wide
        assert is_wide or agreement == ("outside the spread" if target == 90 else "within the spread")


@pytest.mark.parametrize(
    ("seeds", "basis"),
    [(1, Basis.WIDE_SPREAD), (5, Basis.MEAN)],
)
def test_number_carries_the_interval_that_decides(seeds, basis):
    """For a single printed run it is sqrt(n + 1) times as wide as that of the mean."""
    values = [0.95, 0.97, 0.96, 0.97, 0.95]
    how = Aggregation(over="mean", seeds=seeds)
    number, agreement = aggregate_and_judge(values, how, ACCURACY, PublishedTarget(0.979, 0.005))
    half_width = 2.131847 * 0.01 * (math.sqrt(1.2) if seeds == 1 else math.sqrt(0.2))
    assert (number.low, number.high) == (pytest.approx(0.96 - half_width), pytest.approx(0.96 + half_width))
    assert agreement_basis(values, number, agreement, how, PublishedTarget(0.979, 0.005)) is basis
    assert str(number) == f"0.96 [{number.low:.4g}, {number.high:.4g}]"


def test_interval_stays_in_the_possible_range():
    """Of 1, 0.565 and 1 the interval of the mean would reach 1.28."""
    target = PublishedTarget(0.5, 0.005, low=0.0, high=1.0)
    number, _ = aggregate_and_judge([1.0, 0.565, 1.0], Aggregation(), ACCURACY, target)
    assert (number.low, number.high) == (pytest.approx(0.855 - 2.919986 * 0.145, abs=1e-4), 1.0)


def test_errors_over_decades_are_compared_by_logarithm():
    """The logarithms of 1, e and e² have mean 1 and deviation 1; ± 0.5 of a printed e is 0.5 / e of its logarithm."""
    values = [1.0, math.e, math.e**2]
    target = PublishedTarget(math.e, 1.5, error=0.5, is_logarithmic=True)
    number, agreement = aggregate_and_judge(values, Aggregation(over="mean", seeds=5), LOSS, target)
    own, printed_part = 1 / 3, (0.5 / math.e) ** 2 / 5
    half_width = t.ppf(0.95, (own + printed_part) ** 2 / (own**2 / 2 + printed_part**2 / 4)) * math.sqrt(
        own + printed_part
    )
    assert (number.low, number.high) == (
        pytest.approx(math.exp(1 - half_width)),
        pytest.approx(math.exp(1 + half_width)),
    )
    assert number.value == pytest.approx(sum(values) / 3)
    assert agreement == "too wide to say"  # 1.7 either side of 1 in logarithms, 8 times ln 1.5
    for printed, expected in ((1.2, "agrees"), (2.0, "differs"), (0.5, "differs")):
        target = PublishedTarget(printed, 1.5, is_logarithmic=True)
        assert aggregate_and_judge([0.9, 1.0, 1.1], Aggregation(), LOSS, target)[1] == expected


def test_accuracies_scaled_by_chance_level():
    assert scaled(0.6, 0.2) == pytest.approx(0.5)
    assert (scaled(0.5, 0.5), scaled(1.0, 0.5), scaled(0.4, 0.5)) == (0.0, 1.0, pytest.approx(-0.2))


def test_interval_within_tolerance_agrees():
    assert [agreement_within(0.9, 1.1, target, 0.2) for target in (1.0, 1.2, 1.4)] == ["agrees", "undecided", "differs"]
    assert agreement_within(None, None, 1.0, 0.2) == "undecided"


def test_aggregation_of_a_cell_overrides_its_table():
    table = Aggregation(over="mean", seeds=5, deviation="population")
    cell = Aggregation(over="best", seeds=3, scaled=True)
    assert cell.upon(table) == Aggregation(over="best", seeds=3, deviation="population", scaled=True)
    assert cell.upon(table).words == "best of 3, scaled, population deviation"
    assert statistics.pstdev([1.0, 3.0]) == 1.0


@pytest.mark.parametrize("fields", [{"over": "best"}, {"chance": 0.5}, {"over": "worst"}])
def test_impossible_aggregation_is_refused(fields):
    with pytest.raises(ValidationError):
        Aggregation(**fields)


@pytest.mark.parametrize(("baseline", "level"), [(0.2, 0.2), (0.0, 0.0), (None, None), (1.0, None), (1.5, None)])
def test_baseline_of_one_leaves_no_scaled_value(baseline: float | None, level: float | None) -> None:
    assert chance_level(baseline) == level
