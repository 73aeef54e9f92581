"""When a sample is worse than another: the tests, against SciPy's own and the definitions, and the three states."""

from __future__ import annotations

import math
from itertools import combinations

import numpy as np
import pytest
from scipy import stats

from orthobench.analysis.inference import (
    Standing,
    compare_unpaired,
    deciding_seeds,
    is_worse,
    measure_loss,
    open_seeds,
    seeds_of_ranking,
    standings,
    standings_after_first,
    standings_summary,
    verdict,
)
from orthobench.analysis.statistics import LEVEL

BEFORE = [0.012, 0.019, 0.011, 0.015, 0.013]
NOW = [0.021, 0.016, 0.034]


@pytest.mark.parametrize(("direction", "sign"), [("min", 1), ("max", -1)])
def test_interval_matches_welch(direction, sign):
    loss = measure_loss(BEFORE, NOW, direction)
    interval = stats.ttest_ind(NOW, BEFORE, equal_var=False).confidence_interval(1 - 2 * LEVEL)
    bounds = sorted((sign * interval.low, sign * interval.high))
    np.testing.assert_allclose([loss.lower, loss.upper], bounds, rtol=1e-9)
    assert loss.mean == pytest.approx(sign * (np.mean(NOW) - np.mean(BEFORE)))


@pytest.mark.parametrize("scale", [1e-170, 1.0, 1e100])
def test_interval_scales_with_the_values(scale):
    interval = measure_loss([scale * x for x in BEFORE], [scale * x for x in NOW], "min")
    plain = measure_loss(BEFORE, NOW, "min")
    if scale == 1e-170:  # their squares are zero in float64: no spread is left
        assert interval.lower == interval.upper == interval.mean
    else:
        assert interval.upper / scale == pytest.approx(plain.upper)


def test_without_spread_the_difference_is_certain():
    assert measure_loss([1.0] * 3, [1.0] * 5, "max").upper == 0
    assert measure_loss([1.0] * 3, [0.5] * 3, "max").lower == 0.5


@pytest.mark.parametrize(
    ("now", "expected"), [([3.0, 3.4, 3.2, 3.1], True), ([1.9, 9.0, 9.5, 9.2], True), ([1.2, 1.3, 9.0, 9.0], False)]
)
def test_worse_interval_decides_where_ranks_overlap(now, expected):
    before = [1.0, 1.1, 1.2, 1.3, 1.2]
    below = stats.ttest_ind(now, [x + 0.7 for x in before], equal_var=False, alternative="greater").pvalue
    assert is_worse(before, now, "min", 0.7) == expected
    assert expected or below > LEVEL


@pytest.mark.parametrize("now", [[5.0, 6.0, 7.0], [2.5, 6.0, 7.0], [2.0, 2.2, 9.0], [1.0, 1.1, 1.2]])
def test_worse_matches_the_permutation_test_of_ranks(now):
    before, allowed = [1.0, 1.3, 1.6, 1.8], 1.0
    pool = [*now, *(value + allowed for value in before)]
    ranks = stats.rankdata(pool)
    sums = [sum(ranks[list(chosen)]) for chosen in combinations(range(len(pool)), len(now))]
    p = np.mean([total >= sum(ranks[: len(now)]) for total in sums])
    assert is_worse(before, now, "min", allowed) == (p <= LEVEL)


def test_one_failing_seed_does_not_hide_the_others():
    before = [0.0043, 0.0035, 0.0039, 0.0041, 0.0036]
    now = [0.0094, 0.1361, 0.0084, 0.0088, 0.0091]
    assert measure_loss(before, now, "min").lower < 0
    assert is_worse(before, now, "min", 0.002)


def test_three_seeds_can_be_worse():
    assert is_worse([1.0, 1.1, 1.2], [3.0, 3.1, 3.2], "min", 1.0)
    assert not is_worse([1.0, 1.1, 1.2], [2.15, 3.1, 3.2], "min", 1.0)
    assert is_worse([0.9, 0.91, 0.92], [0.5, 0.6, 0.7], "max", 0.1)


@pytest.mark.parametrize(("goal", "sign"), [("min", 1), ("max", -1)])
@pytest.mark.parametrize(
    ("now", "margin", "expected"),
    [
        ([1.05, 1.15, 0.95], 0.5, "same"),
        ([0.5, 0.6, 0.4], 0.5, "better"),
        ([2.0, 2.1, 1.9], 0.5, "worse"),
        ([1.1, 5.0, 1.0], 0.5, "inconclusive"),
        ([1.05, 1.15, 0.95], 0.0, "inconclusive"),  # without a margin nothing is as good
    ],
)
def test_verdict_depends_on_the_margin_and_the_direction(goal, sign, now, margin, expected):
    before = [1.0, 1.1, 0.9]
    found, loss = verdict([sign * value for value in before], [sign * value for value in now], goal, margin)
    assert found == expected
    assert loss.mean == pytest.approx(np.mean(now) - np.mean(before))


def test_side_of_the_ranks_is_the_two_sided_test_that_a_ranking_uses():
    """Of 3 against 4 values without overlap: 1 / 35 on one side, 2 / 35 on both."""
    before, now = [1.0, 1.1, 1.2, 1.3], [2.0, 20.0, 200.0]  # so uneven that Welch's interval includes 0
    assert measure_loss(before, now, "min").lower < 0
    assert compare_unpaired(before, now).p == pytest.approx(2 / 35)
    assert is_worse(before, now, "min", 0.0)
    assert not is_worse(now, before, "min", 0.0)
    assert standings([compare_unpaired(before, now)], [False]) == [Standing.CLEAR]


@pytest.mark.parametrize("comparisons", [1, 2, 6, 7, 23, 24, 39, 85, 86])
@pytest.mark.parametrize("paired", [False, True])
def test_number_of_seeds_that_decide_is_the_smallest(comparisons, paired):
    """Against SciPy's exact p of samples of which one is lower in every seed."""
    n = deciding_seeds(comparisons, paired)
    for seeds, enough in ((n - 1, False), (n, True)):
        low = np.arange(seeds, dtype=float)
        test = stats.wilcoxon(low, 2 * low + seeds, method="exact") if paired else None
        p = test.pvalue if test else stats.mannwhitneyu(low, low + seeds, method="exact").pvalue
        assert (comparisons * p <= LEVEL) == enough


def test_no_number_of_seeds_decides_more_comparisons_than_the_draws_allow():
    """The smallest p of 9,999 draws is 2 / 10,000."""
    assert deciding_seeds(250) is not None
    assert deciding_seeds(251) is None


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ([1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0], "tested apart"),
        ([1.0, 2.0, 3.0], [4.0, 5.0, 6.0], "worse in every seed"),
        ([1.0, 2.0, 3.0], [4.0, 5.0, math.inf], "worse in every seed"),  # one diverged
        ([1.0, 2.0, math.inf], [4.0, 5.0, 6.0], "overlaps"),
        ([1.0, 2.0, 3.0], [3.0, 4.0, 5.0], "overlaps"),  # a tie
        ([1.0, 1.0, 1.0], [1.0, 1.0, 1.0], "overlaps"),  # constants
        ([1.0, 2.0], [4.0, 5.0], "few seeds"),
        ([1.0], [4.0, 5.0, 6.0], "few seeds"),
        ([1.0, 5.0], [4.0, 6.0], "few seeds"),
        ([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], [9.0, 10.0], "few seeds"),  # although p = 2 / 45
    ],
)
def test_states_of_a_ranking(first, second, expected):
    assert standings_after_first([first, second]) == [expected]


def test_models_apart_alone_are_clear_among_many():
    """Six seeds each, the others worse in every seed: of 8 equal models one is so in 3 %, of 20 in 8 %."""
    best, other = [list(map(float, range(start, start + 6))) for start in (0, 10)]
    for rows, state in ((2, Standing.APART), (8, Standing.APART), (20, Standing.CLEAR)):
        assert set(standings_after_first([best] + [other] * (rows - 1))) == {state}


def test_nothing_is_apart_with_three_seeds():
    """However far: one of two equal models is worse in every seed in a tenth of the cases."""
    for rows in (2, 41):
        states = standings_after_first([[i / 9, i + 0.5, i + 0.7] for i in range(0, 10 * rows, 10)])
        assert set(states) == {Standing.CLEAR}
        assert seeds_of_ranking(rows) > 3


@pytest.mark.parametrize("models", [2, 3, 7, 24])
def test_seeds_of_a_ranking_are_the_fewest(models):
    """Against own draws: how often one of equal models is worse in every seed than the one with the best median."""
    n, random = seeds_of_ranking(models), np.random.default_rng(models)
    for seeds, enough in ((n - 1, False), (n, True)):
        values = random.normal(size=(10_000, models, seeds))
        first = np.median(values, axis=2).argmin(axis=1)
        ends = values[np.arange(len(values)), first].max(axis=1)
        assert ((values.min(axis=2) > ends[:, None]).any(axis=1).mean() <= LEVEL) == enough


def test_pair_is_apart_by_the_exact_test():
    """Of seven seeds each, U = 8 of 49 has p = 0.0379 on both sides, and U = 9 has 0.0530."""
    first = [float(i) for i in range(7)]
    for below, state in ((8, Standing.APART), (9, Standing.OVERLAPS)):
        other = [100.0] * 5 + [first[6 - below // 2] + 0.5] * 2
        other[-1] -= below % 2
        wins = sum(high < low for high in other for low in first)
        assert wins == below
        assert standings_after_first([first, [value + i / 100 for i, value in enumerate(other)]]) == [state]


def test_row_with_few_seeds_moves_no_other():
    first, other = [1.0, 2.0, 3.0, 4.0], [5.0, 6.0, 7.0, 8.0]
    assert standings_after_first([first, other, [9.0], [9.0, 9.5]]) == [Standing.APART, Standing.FEW, Standing.FEW]
    assert standings_after_first([[1.0], other, first]) == [Standing.FEW, Standing.FEW]
    assert standings_after_first([first]) == standings_after_first([]) == []


def test_other_rows_move_no_pair_of_equal_models_apart():
    """Ranks are those of the pair: 30 rows between two seeds of the models do not count."""
    first, other = [0.0, 1.0, 100.0, 101.0, 102.0], [0.5, 1.5, 100.5, 101.5, 102.5]
    between = [[50 + i + j / 10 for j in range(5)] for i in range(30)]
    assert standings_after_first([first, other, *between])[0] == Standing.OVERLAPS


def test_three_equal_models_are_seldom_clear():
    """Three seeds of each, all drawn alike: one is better in every seed in a tenth of the cases."""
    random = np.random.default_rng(0)
    states = [standings_after_first(random.normal(size=(2, 3)).tolist())[0] for _ in range(2000)]
    assert states.count(Standing.CLEAR) / 2000 == pytest.approx(0.1, abs=0.02)
    assert Standing.APART not in states


def test_summary_counts_the_states():
    several = [Standing.CLEAR] * 3 + [Standing.OVERLAPS] + [Standing.FEW] * 2
    assert standings_summary(several) == "3 worse in every seed, 1 overlapping, 2 with few seeds"


@pytest.mark.parametrize(
    ("states", "expected"),
    [
        ("worse in every seed", 5),
        ("few seeds, overlaps", 5),
        ("overlaps", None),
        ("tested apart, overlaps", None),
        ("tested apart, worse in every seed", 5),
    ],
)
def test_more_seeds_are_named_only_if_they_can_decide(states, expected):
    assert open_seeds(list(map(Standing, states.split(", "))), 3) == expected
