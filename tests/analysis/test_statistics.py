import itertools
import math

import numpy as np
import pytest
from scipy.stats import quantile_test, t, ttest_1samp, ttest_ind_from_stats

from orthobench.analysis.claims.claim import shares_of_seeds
from orthobench.analysis.statistics import Median, Side, curve_end, equivalence, median, side, summarize


def test_mean_interval_is_students_t():
    """Five values of mean 3 and variance 2.5: t(4, 0.975) = 2.776, half width 2.776 sqrt(2.5 / 5)."""
    summary = summarize([1, 2, 3, 4, 5])
    assert (summary.n, summary.mean) == (5, 3)
    assert summary.half_width == pytest.approx(2.7764451 * math.sqrt(0.5), rel=1e-6)
    assert str(summary) == "3 [1.04, 4.96]"
    assert str(summarize([1.0, 2.0, 3.0, 4.0, 5.0], bounds=(2.0, 4.5))) == "3 [2, 4.5]"


def test_interval_of_few_values():
    assert summarize([]) is None
    assert summarize([math.nan, math.inf]) is None
    assert str(summarize([0.25])) == "0.25"
    assert summarize([1, math.nan, 3]).n == 2


@pytest.mark.parametrize(
    ("count", "first"), [(1, 0), (4, 3), (9, 8), (10, 7), (30, 27), (31, 27), (71, 63), (101, 90), (201, 180)]
)
def test_curve_end_is_the_last_tenth_of_the_tests(count, first):
    """At least three tests; of fewer than ten tests the last alone. The values are in order, so the median is known."""
    end = curve_end([float(i) for i in range(count)])
    assert end.tests == tuple(range(first, count))
    assert end.value == (first + count - 1) / 2


def test_one_lucky_test_does_not_reach_the_limit():
    """The last of 200 tests is below the limit; more than half of the last 20 are above."""
    curve = [1.0] * 180 + [0.3] * 11 + [0.1] * 9
    end = curve_end(curve)
    assert (curve[-1], end.value) == (0.1, 0.3)
    assert side([end], 0.2) == Side(0, 1, 0.55)
    assert side([end], 0.2, sign=-1.0) == Side(1, 1, 0.45)
    assert str(side([end, curve_end([0.1])], 0.2)) == "1 of 2 seeds, 48 % of the last tests"


def test_non_finite_end_reaches_no_limit():
    end = curve_end([1.0] * 28 + [0.5, math.nan])
    assert math.isnan(end.value)
    assert side([end], 2.0) == Side(0, 1, 1 / 3)
    assert not side([end], 2.0).holds
    assert curve_end([]) is None
    assert not side([], 2.0).holds
    assert side([curve_end([2.0])], 2.0).holds


@pytest.mark.parametrize("n", [*range(6, 15), 20, 40, 300])
@pytest.mark.parametrize("level", [0.05, 0.1])
def test_median_interval_matches_scipy(n, level):
    """SciPy's interval of a quantile is between order statistics too (Conover, 1999)."""
    values = np.random.default_rng(n).normal(size=n)
    expected = quantile_test(values, p=0.5).confidence_interval(1 - level)
    interval = median(values.tolist(), level)
    assert (interval.low, interval.high) == (expected.low, expected.high)


@pytest.mark.parametrize(("n", "coverage"), [(5, 0.9375), (6, 0.969), (7, 0.984), (8, 0.992), (9, 0.961), (10, 0.979)])
def test_coverage_of_the_median_interval_is_exact(n, coverage):
    """All orders of values below and above the median are alike likely; the docstring names these numbers."""
    values = [float(i) for i in range(n)]
    interval = median(values)
    below = values.index(interval.low)
    above = n - 1 - values.index(interval.high)
    # The median is within the interval unless it comes before the first value of it, or after the last one.
    hits = sum(below < sum(signs) < n - above for signs in itertools.product((0, 1), repeat=n))
    assert hits / 2**n == pytest.approx(coverage, abs=5e-4)
    assert f"{100 * coverage:.4g}" in median.__doc__


def test_diverged_runs_enter_the_median_as_the_worst():
    assert median([0.01, 0.011, 0.012, math.inf]).value == 0.0115
    assert median([0.01, 0.011, 0.012, math.inf]).high is None  # four seeds have no interval
    lost = median([0.01, 0.011, 0.012, 0.009, math.inf])
    assert (lost.value, lost.low, lost.high) == (0.011, 0.009, math.inf)
    assert str(lost) == "0.011 [0.009, inf]"
    worst_low = median([0.9, 0.91, 0.92, 0.93, -math.inf])
    assert (worst_low.low, worst_low.high) == (-math.inf, 0.93)
    assert median([math.inf] * 5).value == math.inf
    assert median([0.5] * 5) == Median(5, 0.5, 0.5, 0.5)
    assert median([]) is None
    with pytest.raises(ValueError, match="NaN"):
        median([1.0, math.nan])


@pytest.mark.parametrize(("n", "draws"), [(3, 4_000), (5, 4_000), pytest.param(10, 40_000, marks=pytest.mark.slow)])
def test_mean_at_the_margin_agrees_at_most_five_percent(n, draws):
    """The size of the equivalence test, where the true mean lies just at the tolerance; and its power at zero."""
    rng = np.random.default_rng(11)
    margin = 0.005
    verdicts = {
        shift: [equivalence(rng.normal(0.97 + shift, 0.001, n), 0.97, margin).verdict for _ in range(draws)]
        for shift in (margin, -margin, 0.0, 2 * margin)
    }
    noise = 3 * math.sqrt(0.05 * 0.95 / draws)
    for shift in (margin, -margin):
        assert verdicts[shift].count("agrees") / draws <= 0.05 + noise
        assert verdicts[shift].count("differs") / draws <= 0.05 + noise
    assert verdicts[0.0].count("agrees") / draws > 0.9
    assert verdicts[0.0].count("differs") == 0
    assert verdicts[2 * margin].count("differs") / draws > 0.9


@pytest.mark.parametrize(
    ("values", "verdict"),
    [
        ([0.250, 0.251, 0.2505], "agrees"),
        ([0.250, 0.251], "undecided"),
        ([0.25], "undecided"),
        ([0.25, 0.25], "undecided"),  # however close
        ([0.9, 0.9], "undecided"),  # however far
        ([], "undecided"),
        ([0.2, 0.3, 0.28], "undecided"),
        ([0.2, 0.201, 0.202], "differs"),
        ([0.3, 0.301, 0.302], "differs"),
        ([0.25, 0.25, 0.25], "agrees"),
        ([0.25, 0.25, 0.25, math.inf], "undecided"),  # a diverged seed has no mean
    ],
)
def test_agreement_is_proven_refuted_or_undecided(values, verdict):
    assert equivalence(values, 0.25, 0.005).verdict == verdict


def test_agreement_matches_two_one_sided_t_tests():
    """Agrees where both one-sided t tests of scipy reject at 5 %; differs where the mean is proven to be beyond."""
    rng = np.random.default_rng(5)
    seen = set()
    for shift in np.linspace(0, 0.02, 60):
        values = rng.normal(0.5 + shift, 0.003, 4)
        above = ttest_1samp(values, 0.49, alternative="greater").pvalue
        below = ttest_1samp(values, 0.51, alternative="less").pvalue
        beyond = ttest_1samp(values, 0.51, alternative="greater").pvalue
        expected = "agrees" if max(above, below) <= 0.05 else "differs" if beyond < 0.05 else "undecided"
        assert equivalence(values, 0.5, 0.01).verdict == expected
        seen.add(expected)
    assert seen == {"agrees", "differs", "undecided"}


@pytest.mark.parametrize("n", [3, 10, 30])
def test_published_single_run_of_same_distribution_differs_in_ten_percent(n):
    """At any number of seeds: the prediction interval covers one more run in 90 %. That of the mean does not."""
    rng = np.random.default_rng(3)
    draws = 2_000
    samples = [(rng.normal(0.004, 0.001, n), rng.normal(0.004, 0.001)) for _ in range(draws)]

    def share(verdict: str, runs: int | None) -> float:
        return sum(equivalence(values, run, 0.0, runs=runs).verdict == verdict for values, run in samples) / draws

    assert abs(share("outside the spread", 1) - 0.1) <= 3 * math.sqrt(0.1 * 0.9 / draws)
    assert share("differs", None) > 0.2


def test_prediction_interval_of_one_more_run():
    """Five values with mean 3 and variance 2.5: the t quantile of 95 % at 4 degrees of freedom is 2.131847."""
    interval = equivalence([1.0, 2.0, 3.0, 4.0, 5.0], 3.0, 0.1, runs=1)
    half_width = 2.131847 * math.sqrt(2.5 * 1.2)
    assert (interval.low, interval.high) == (pytest.approx(3 - half_width), pytest.approx(3 + half_width))
    assert interval.verdict == "within the spread"
    assert equivalence([1.0, 2.0, 3.0, 4.0, 5.0], 3.01 + half_width, 9.0, runs=1).verdict == "outside the spread"
    assert equivalence([1.0, 2.0], 1.5, 0.1, runs=1).verdict == "undecided"


@pytest.mark.parametrize(("printed", "error", "runs"), [(0.5, 0.1, 5), (2.0, 0.3, 3), (1.0, 1e-3, 50), (0.0, 4.0, 2)])
def test_published_deviation_gives_welchs_interval(printed, error, runs):
    """The interval, moved to the difference, is scipy's of Welch's test from the statistics of both samples."""
    values = [0.9, 1.3, 1.1, 1.6]
    result = equivalence(values, printed, 0.1, error, runs)
    deviation = np.std(values, ddof=1)
    own, printed_runs = deviation**2 / 4, error**2 / runs
    freedom = (own + printed_runs) ** 2 / (own**2 / 3 + printed_runs**2 / (runs - 1))
    low, high = t.interval(0.9, freedom, np.mean(values) - printed, math.sqrt(own + printed_runs))
    assert (result.low - printed, result.high - printed) == (pytest.approx(low), pytest.approx(high))
    p = ttest_ind_from_stats(np.mean(values), deviation, 4, printed, error, runs, equal_var=False).pvalue
    assert (p < 0.1) == (low > 0 or high < 0)


def test_equal_values_need_no_spread():
    """A deviation on one side alone has that side's degrees of freedom: t of 95 % at 4 is 2.131847."""
    assert equivalence([1.0, 1.0, 1.0], 1.0, 0.005, 0.0, 5).verdict == "agrees"
    result = equivalence([1.0, 1.0, 1.0], 1.0, 0.005, 0.1, 5)
    assert result.high == pytest.approx(1 + 2.131847 * 0.1 / math.sqrt(5), rel=1e-6)
    known = equivalence([1.0, 1.0, 1.0], 1.0, 0.005, 0.1)  # a standard error, whose degrees of freedom nobody printed
    assert known.high == pytest.approx(1 + 1.644854 * 0.1, rel=1e-6)


def test_two_samples_of_one_distribution_differ_at_most_ten_percent():
    """Where the printed runs scatter as measured. Without their deviation a printed mean differs far more often."""
    rng = np.random.default_rng(4)
    draws = 3_000
    pairs = [(rng.normal(0.5, 0.03, 10), rng.normal(0.5, 0.03, 5)) for _ in range(draws)]

    def share(error: bool) -> float:
        verdicts = [
            equivalence(measured, printed_runs.mean(), 0.0, printed_runs.std(ddof=1) if error else 0.0, 5).verdict
            for measured, printed_runs in pairs
        ]
        return verdicts.count("differs") / draws

    assert share(True) <= 0.1 + 3 * math.sqrt(0.1 * 0.9 / draws)
    assert share(False) > 0.25


@pytest.mark.parametrize(
    ("rivals", "value", "seeds"),
    [
        ([[9.0] * 3, [None] * 3], 0.0, 3),  # none of the second can be compared
        ([[None] * 3, [None] * 3], 0.0, 0),
        ([[9.0] * 3, []], 0.0, 0),  # the second was not measured
        ([[0.0] * 3, [0.0, None, None]], 1.0, 1),
    ],
)
def test_rival_without_a_pair_decides_nothing(rivals, value, seeds):
    def larger(first: float, other: float | None) -> float | None:
        return None if other is None else float(first > other)

    share, _ = shares_of_seeds([1.0, 1.0, 1.0], rivals, larger)
    assert (share.value, share.seeds) == (value, seeds)
