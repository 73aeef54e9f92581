"""The margins and what they detect, against the definitions and a printed table."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import integrate, stats

from orthobench.analysis.inference import is_worse, measure_loss
from orthobench.analysis.statistics import LEVEL
from orthobench.gate.margins import (
    CERTAIN,
    DETECTION,
    DEVIATIONS,
    _deciding_pairs,
    detectable_loss,
    detection,
    measured_margin,
    power,
    seeds_needed,
    stored_margin,
)

BEFORE = [0.012, 0.019, 0.011, 0.015, 0.013]


def defined_power(margin, deviation, n):
    """P(d + t s sqrt(2 / n) < margin) for two samples of n, integrated over the common estimate s of the deviation."""
    freedom, error = 2 * n - 2, deviation * math.sqrt(2 / n)
    threshold = stats.t.isf(LEVEL, freedom)

    def conditional_power(chi2):
        return stats.norm.cdf(margin / error - threshold * math.sqrt(chi2 / freedom)) * stats.chi2.pdf(chi2, freedom)

    return integrate.quad(conditional_power, 0, np.inf)[0]


@pytest.mark.parametrize("n", [3, 5, 10])
@pytest.mark.parametrize("margin", [0.0, 0.5, 2.0, 4.0])
def test_power_matches_its_definition(n, margin):
    assert power(margin, 1.3, n, n) == pytest.approx(defined_power(margin, 1.3, n), abs=1e-6)


def test_power_matches_cohens_table():
    """J. Cohen, Statistical Power Analysis, 2nd ed. 1988, table 2.3.2: a1 = .05, d = .80, n = 20 has power .80."""
    assert power(0.8, 1.0, 20, 20) == pytest.approx(0.80, abs=0.005)


def test_power_far_from_the_margin_is_one():
    assert power(1.0, 1e-9, 3, 3) == 1.0
    assert power(0.1, 0.0, 3, 3) == 1.0
    assert power(29.9 * math.sqrt(2 / 3), 1.0, 3, 3) == pytest.approx(1.0)


def test_measured_margin_has_its_power_at_the_upper_limit_of_the_deviation():
    deviation = np.std(BEFORE, ddof=1) * math.sqrt(4 / stats.chi2.ppf(0.1, 4))
    margin = measured_margin(BEFORE, 5, "min")
    assert defined_power(margin, deviation, 5) == pytest.approx(CERTAIN, abs=1e-6)
    assert measured_margin([0.5] * 3, 3, "max") == 0.0


@pytest.mark.parametrize(("direction", "sign"), [("min", 1), ("max", -1)])
def test_measured_margin_allows_for_occasionally_failing_seeds(direction, sign):
    """One in ten does here: checks drawn from the same values, compared by SciPy's test, pass 99.9 times in 100."""
    before = sign * np.array([0.01, 0.012, 0.011, 0.009, 0.008, 0.01, 0.013, 0.01, 0.012, 0.2])
    margin = measured_margin(before.tolist(), 4, direction)
    random = np.random.default_rng(1)
    now = random.choice(before, (2000, 4))
    now = now[now.std(1) > 0] * sign
    bounds = stats.ttest_ind(now, sign * before, axis=1, equal_var=False).confidence_interval(1 - 2 * LEVEL).high
    assert np.mean(bounds <= margin) > 0.997
    assert np.mean(bounds <= 0.8 * margin) < 0.999


def test_unchanged_code_passes_with_a_measured_margin():
    """Baselines and checks of five seeds each, all drawn alike. The limit of the deviation holds in nine of ten."""
    per_deviation = measured_margin(BEFORE, 5, "min") / np.std(BEFORE, ddof=1)
    random = np.random.default_rng(0)
    passed = worse = 0
    for _ in range(400):
        before, now = random.normal(size=(2, 5)).tolist()
        margin = per_deviation * np.std(before, ddof=1)
        passed += measure_loss(before, now, "min").upper <= margin
        worse += is_worse(before, now, "min", margin)
    assert passed / 400 > 0.9 * CERTAIN
    assert worse == 0


NORMAL = stats.norm.ppf((np.arange(20) + 0.5) / 20)
"""Twenty values with the quantiles of a normal distribution."""


@pytest.mark.parametrize("deviations", [0.0, 1.0, 3.0])
def test_detection_of_a_loss_matches_its_definition(deviations):
    """A loss moves the mean towards the margin: the definition of the power with a smaller margin."""
    deviation = np.std(BEFORE, ddof=1)
    margin = 2.5 * deviation
    expected = 1 - defined_power(margin - deviations * deviation, deviation, 5)
    assert detection(BEFORE, 5, margin, deviations) == pytest.approx(expected, abs=1e-6)
    assert detection([0.5] * 3, 3, 0.0, deviations) == 1.0


def test_detection_is_the_share_of_checks_that_do_not_pass():
    margin = measured_margin(NORMAL.tolist(), 5, "min")
    deviation = np.std(NORMAL, ddof=1)
    random = np.random.default_rng(3)
    failed = 0
    for _ in range(1000):
        before, now = random.normal(0, deviation, 20), random.normal(DEVIATIONS * deviation, deviation, 5)
        failed += measure_loss(before.tolist(), now.tolist(), "min").upper > margin
    assert failed / 1000 == pytest.approx(detection(NORMAL.tolist(), 5, margin), abs=0.04)


def test_fewest_seeds_that_detect_three_deviations():
    measured, checked = seeds_needed(NORMAL.tolist(), 4, "min")
    assert (measured, checked) == (20, 5)
    for n, enough in ((4, False), (5, True)):
        margin = stored_margin(NORMAL.tolist(), n, "min")
        assert (detection(NORMAL.tolist(), n, margin) >= DETECTION) == enough


def test_advised_seeds_are_enough_with_the_margin_that_the_baseline_stores():
    random, advised = np.random.default_rng(0), 0
    for _ in range(60):
        values = (0.15 + 0.01 * random.standard_normal(10)).round(6).tolist()
        needed = seeds_needed(values, 5, "min")
        if needed is not None and needed[0] == len(values):
            advised += 1
            assert detection(values, needed[1], stored_margin(values, needed[1], "min")) >= DETECTION
    assert advised > 20


def test_small_baseline_needs_more_seeds():
    assert seeds_needed(BEFORE, 3, "min") == (20, 6)
    limit = math.sqrt(19 / stats.chi2.ppf(0.1, 19))
    for n, enough in ((5, False), (6, True)):
        margin = next(m for m in np.linspace(0, 10, 2001) if power(m, limit, 20, n) >= CERTAIN)
        assert (1 - power(margin, 1.0, 20, n, 3.0) >= DETECTION) == enough
    assert seeds_needed([*[0.0] * 119, 1.0], 3, "min") is None


@pytest.mark.parametrize(("n_before", "n_now", "goal"), [(12, 5, "min"), (40, 8, "min"), (12, 5, "max")])
def test_detectable_loss_is_called_worse_in_most_simulated_checks(n_before, n_now, goal):
    """Against checks of normal values, by the verdict itself; within three standard errors of their share."""
    checks, allowed = 600, 0.5
    before = stats.norm.ppf((np.arange(n_before) + 0.5) / n_before).tolist()
    loss = detectable_loss(before, n_now, allowed, goal)
    mean, draw = loss if goal == "min" else -loss, np.random.default_rng(3)
    now = draw.normal(mean, np.std(before, ddof=1), (checks, n_now)).tolist()
    share = sum(is_worse(before, values, goal, allowed) for values in now) / checks
    assert share == pytest.approx(DETECTION, abs=3 * math.sqrt(DETECTION * (1 - DETECTION) / checks))


def test_detectable_loss_of_a_skewed_spread_depends_on_the_better_direction():
    """A seed that fails to learn widens the spread on the side of the losses."""
    before = [0.0] * 15 + [0.1, 0.2, 0.3, 0.2, 5.0]
    losses = {goal: detectable_loss(before, 5, 0.5, goal) for goal in ("min", "max")}
    mirrored = [-value for value in before]
    assert losses == {
        goal: detectable_loss(mirrored, 5, 0.5, other) for goal, other in (("min", "max"), ("max", "min"))
    }
    assert losses["min"] != losses["max"]


@pytest.mark.parametrize(("n", "m"), [(3, 3), (12, 5), (20, 8)])
def test_deciding_pairs_are_those_of_the_exact_rank_test(n, m):
    pairs = _deciding_pairs(n, m)
    p = {u: stats.mannwhitneyu(*_samples_with_pairs(n, m, u), alternative="less", method="exact").pvalue
         for u in (pairs, pairs - 1)}  # fmt: skip
    assert p[pairs] <= LEVEL < p[pairs - 1]
    assert _deciding_pairs(2, 2) is None


def _samples_with_pairs(n, m, pairs):
    """Return two samples without ties, of whose n * m pairs this many have the higher value in the second one."""
    first = np.arange(1.0, n + 1)
    below = [pairs // m + (i < pairs % m) for i in range(m)]
    return first, np.array([count + 0.5 + 0.01 * i for i, count in enumerate(below)])
