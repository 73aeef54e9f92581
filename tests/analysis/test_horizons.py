"""Horizons of state tracking: their estimate and interval, the forecast from the ratio, and what a run ends with."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binomtest
from support.length_variants import with_horizons

from orthobench.analysis.horizons import CONFIDENCE, Horizon, Reading, fits, forecast, median_horizon
from workshop.website.horizon_outcomes import HorizonOutcome, agreement, median_outcome, outcomes

LENGTHS = np.arange(1.0, 257.0)


def reading(accuracy: np.ndarray, count: float = 256, chance: float = 0.0) -> Reading:
    return Reading.of(LENGTHS[: len(accuracy)], accuracy, np.full(len(accuracy), count), chance)


def test_horizon_is_where_the_score_falls_below_the_level():
    falling = 1 - LENGTHS / 512
    assert reading(falling).horizon(0.9) == 51  # 1 - 51 / 512 = 0.9004
    assert reading(falling, chance=0.5).horizon(0.9) == 25  # 95 % of the states
    assert reading(np.ones(256)).horizon() == math.inf
    assert reading(np.full(256, 0.2)).horizon() == 0


def test_noise_does_not_end_the_horizon_early():
    """The first of many noisy values below 0.9 comes long before the score, which falls from 1 to 0.5, gets there."""
    ends, first = [], []
    for seed in range(40):
        read = np.random.default_rng(seed).binomial(256, 1 - LENGTHS / 512) / 256
        ends.append(reading(read).horizon())
        first.append(LENGTHS[read < 0.9][0])
    assert np.median(ends) == pytest.approx(51, abs=2)
    assert np.median(first) == pytest.approx(42, abs=2)


@pytest.mark.parametrize("chance", [0.0, 1 / 6])
def test_interval_has_the_lengths_at_which_a_binomial_test_is_undecided(chance):
    read = np.sort(np.random.default_rng(1).binomial(64, 1 - LENGTHS / 1024))[::-1]
    own = reading(read / 64, count=64, chance=chance)
    limit = chance + 0.9 * (1 - chance)
    tests = [binomtest(int(each), 64).proportion_ci(CONFIDENCE) for each in read]
    surely_above = [test.low >= limit for test in tests]
    not_below = [test.high >= limit for test in tests]
    low, high = own.interval()
    assert (low, high) == (surely_above.index(False), not_below.index(False))
    assert low <= own.horizon(0.9) <= high


def test_perfect_answers_are_surely_above_the_level():
    assert reading(np.ones(20), count=64, chance=0.5).interval() == (math.inf, math.inf)


@pytest.mark.parametrize("power", [0.5, 1.0])
def test_forecast_extends_a_power_law(power):
    """The ratio reaches the threshold at length 100 by construction, however fast it grows."""
    threshold = 0.6
    ratio = threshold * (LENGTHS / 100) ** power
    ratio[20:] = np.nan  # beyond the training lengths nothing is used
    assert forecast(LENGTHS, ratio, threshold, 20.0) == pytest.approx(100)


def test_forecast_without_growth_lies_beyond_every_test_or_at_none():
    flat = np.full(256, 0.3)
    assert forecast(LENGTHS, flat, 0.6, 20.0) == math.inf
    assert forecast(LENGTHS, flat * 3, 0.6, 20.0) == 0
    assert forecast(LENGTHS, flat, 0.0, 20.0) is None  # the ratio predicts nothing
    assert forecast(LENGTHS, flat, 0.6, 2.0) is None  # two lengths


def test_agreement_is_of_lengths_within_the_tests():
    measured = [Horizon(0, 0, 0.0, each, 256.0, 20.0) for each in (20.0, 50.0, 100.0)]
    found = agreement([(measured[0], 40.0), (measured[1], 20.0), (measured[2], math.inf), (measured[0], None)])
    assert found is not None
    assert (found.runs, found.near) == (3, 1)
    logs = np.log([2.0, 0.4, 2.56])
    assert found.error == pytest.approx(math.exp(math.sqrt((logs**2).mean())))
    assert agreement([(measured[0], None)]) is None


def test_runs_end_as_their_horizons_losses_and_status_say():
    learning, flat = [3.0, 1.0, 1.0, 0.89], [3.0, 1.0, 1.0, 0.91]
    assert outcomes(with_horizons("gru", (0.0, math.inf), (0.0, 60.0), diverged=1)) == [
        HorizonOutcome.DIVERGED,
        HorizonOutcome.KEEPS,
        HorizonOutcome.LOSES,
    ]
    assert outcomes(with_horizons("gru", (0.0, 10.0), losses=learning)) == [HorizonOutcome.LEARNING]
    assert outcomes(with_horizons("gru", (0.0, 10.0), losses=flat)) == [HorizonOutcome.FLAT]


def test_diverged_seeds_are_the_worst_of_the_median():
    two_lost = with_horizons("gru", (0.0, math.inf), diverged=2)
    assert (median_outcome(two_lost), fits(two_lost), median_horizon(two_lost)) == (HorizonOutcome.DIVERGED, False, 0)
    one_lost = with_horizons("gru", (0.0, math.inf), (0.0, 60.0), diverged=1)
    assert (median_outcome(one_lost), fits(one_lost), median_horizon(one_lost)) == (HorizonOutcome.LOSES, True, 60)
