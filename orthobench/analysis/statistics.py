"""Statistics of curves and seeds: ends, summaries, agreement with a number, and shares of seeds."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypeVar

if TYPE_CHECKING:
    import numpy as np

LEVEL = 0.05
"""The error rate of every test; intervals have the complementary coverage, 95 %."""

END_SHARE = 0.1
"""The share of a curve's tests, counted from the last one, that form its end."""
FEWEST_END_TESTS = 3
"""The smallest number of tests in an end, for a curve of `FEWEST_TESTS` or more."""
FEWEST_TESTS = 10
"""A curve with fewer tests ends with its last test alone, because several would reach back too far into training."""


@dataclass(frozen=True)
class CurveEnd:
    """The end of a curve; `tests` are its last tests in order."""

    tests: tuple[float, ...]

    @property
    def value(self) -> float:
        """The median of the tests; NaN if one of them is NaN."""
        return math.nan if any(map(math.isnan, self.tests)) else statistics.median(self.tests)


def curve_end(values: Sequence[float]) -> CurveEnd | None:
    """Return the end of a curve of tests: the last tenth, but at least three tests; None for an empty curve.

    The end of a curve with fewer than ten tests is its last test.
    """
    count = max(FEWEST_END_TESTS, math.ceil(END_SHARE * len(values))) if len(values) >= FEWEST_TESTS else 1
    return CurveEnd(tuple(map(float, values[-count:]))) if len(values) else None


@dataclass(frozen=True)
class Side:
    """How the ends of several seeds compare with a limit.

    Attributes:
        reached: the number of seeds whose end is at the limit or better.
        seeds: the number of all seeds.
        tests_beyond: the share of the ends' tests that are worse than the limit; a test that is NaN counts as worse.
    """

    reached: int
    seeds: int
    tests_beyond: float

    @property
    def holds(self) -> bool:
        """Whether there are seeds and all reach the limit."""
        return 0 < self.reached == self.seeds

    def __str__(self) -> str:
        return f"{self.reached} of {self.seeds} seeds, {self.words} of the last tests"

    @property
    def words(self) -> str:
        """Describe which share of the ends' tests is not worse than the limit; "all" and "none" mean no exception."""
        if not self.tests_beyond < 1:  # NaN without tests
            return "none"
        percent = 100 * (1 - self.tests_beyond)
        return f"{min(99, max(1, round(percent)))} %" if self.tests_beyond else "all"


def side(ends: Sequence[CurveEnd], limit: float, sign: float = 1.0) -> Side:
    """Compare ends with a limit.

    Args:
        sign: makes lower values better, as `Metric.sign` does: 1 if the goal is "min", -1 if it is "max".
    """
    reached = [sign * end.value <= sign * limit for end in ends]
    # Negated, because a test that is NaN counts as worse.
    beyond = [not sign * test <= sign * limit for end in ends for test in end.tests]
    return Side(sum(reached), len(ends), sum(beyond) / len(beyond) if beyond else math.nan)


@dataclass(frozen=True)
class Summary:
    """The mean of n values with its 95 % Student-t interval, which is None for fewer than two values.

    Attributes:
        half_width: half the width of the whole interval.
        low: lower end, within the possible range.
        high: upper end, within the possible range.
    """

    n: int
    mean: float
    half_width: float | None = None
    low: float | None = None
    high: float | None = None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.mean:.4g}{interval}"


def summarize(values: Sequence[float], bounds: tuple[float, float] = (-math.inf, math.inf)) -> Summary | None:
    """Return the summary of the finite values; None without any.

    Args:
        bounds: the smallest and the largest possible value, to which the interval is clipped.
    """
    finite = [value for value in values if math.isfinite(value)]
    n = len(finite)
    if n == 0:
        return None
    # An exact sum, because the order in which the runs come must not matter.
    mean = math.fsum(finite) / n
    if n == 1:
        return Summary(1, mean)
    from scipy.special import stdtrit

    deviation = math.sqrt(math.fsum((value - mean) ** 2 for value in finite) / (n - 1))
    half_width = float(stdtrit(n - 1, 1 - LEVEL / 2)) * deviation / math.sqrt(n)
    return Summary(n, mean, half_width, max(mean - half_width, bounds[0]), min(mean + half_width, bounds[1]))


DRAWS = 9_999
"""The number of resamples to draw; if there are no more permutations, all are tried and the test is exact."""
VALUES_AT_ONCE = 1_000_000
"""Values of resamples that are held in memory at once."""
FEWEST_OF_MEDIAN = 5
"""The fewest values for which a median has an interval: the range of five covers it in 93.75 % of cases, of four in
87.5 %."""


@dataclass(frozen=True)
class Median:
    """The median of n values, which may be infinite, with its 95 % interval (None below five values)."""

    n: int
    value: float
    low: float | None
    high: float | None

    def __str__(self) -> str:
        interval = "" if self.low is None or self.high is None else f" [{self.low:.3g}, {self.high:.3g}]"
        return f"{self.value:.4g}{interval}"


def median(values: Sequence[float], level: float = LEVEL) -> Median | None:
    """Return the median with the interval between its order statistics; None without values.

    The ends are the k-th smallest and the k-th largest value. Such an interval misses the median of any continuous
    distribution with probability 2 P(B < k), where B is binomial with n trials of probability 1/2 (David and Nagaraja,
    Order Statistics, 2003, section 7.1). The function takes the largest k that keeps this below the level, and at
    least 1. So at 5 % the interval of up to eight values is their range. It covers the median in 93.75 % of cases for
    five values, and in 96.9, 98.4, 99.2, 96.1 and 97.9 % for six to ten. With ties it covers the median more often.

    A run without a value counts as infinity with the worse sign.

    Args:
        level: the two-sided probability that the interval misses the median.

    Raises:
        ValueError: a value is NaN.
    """
    refuse_nan(values)
    n = len(values)
    if n == 0:
        return None
    value = statistics.median(values)
    if n < FEWEST_OF_MEDIAN:
        return Median(n, value, None, None)
    from scipy.special import bdtr

    at = max(1, int((bdtr(range(n // 2), n, 0.5) <= level / 2).sum()))
    ordered = sorted(map(float, values))
    return Median(n, value, ordered[at - 1], ordered[-at])


def draws_at_once(values: int) -> int:
    """Return the number of draws of this many values to hold at once; it does not change the result."""
    return max(1, VALUES_AT_ONCE // values)


def in_parts(rows: np.ndarray) -> list[np.ndarray]:
    """Return the rows of a matrix in views of at most `VALUES_AT_ONCE` values, or of one row."""
    count = draws_at_once(rows.shape[1])
    return [rows[start : start + count] for start in range(0, len(rows), count)]


def best_of(values: Sequence[float], k: int, sign: float, level: float) -> tuple[float, float]:
    """Return the percentile bootstrap interval of the best of k values, in closed form.

    If n values are sorted, best first, the best of k draws comes after the i-th value with probability (1 - i / n)^k.
    Values may be infinite.

    Args:
        sign: makes lower values better, as `Metric.sign` does.
        level: the two-sided probability outside the interval.

    Raises:
        ValueError: a value is NaN.
    """
    refuse_nan(values)
    ordered, n = sorted(values, key=lambda value: sign * value), len(values)

    def at(probability: float) -> float:
        return next(value for i, value in enumerate(ordered, 1) if 1 - (1 - i / n) ** k >= probability)

    low, high = sorted((at(level / 2), at(1 - level / 2)))
    return low, high


Variance = TypeVar("Variance", float, "np.ndarray")

Agreement = Literal["agrees", "differs", "within the spread", "outside the spread", "undecided", "too wide to say"]
FEWEST_SEEDS = 3
"""The fewest values for a verdict, because the spread of two values is itself too uncertain."""


@dataclass(frozen=True)
class Equivalence:
    """Whether values agree with a number, by their 90 % interval [low, high]; None for fewer than two values."""

    verdict: Agreement
    low: float | None
    high: float | None


def equivalence(
    values: Sequence[float], target: float, margin: float, error: float = 0.0, runs: int | None = None
) -> Equivalence:
    """Test whether values agree with a target, by a 90 % interval.

    If the target is a mean, the test consists of two one-sided t tests at 5 % each (Schuirmann, 1987). Both reject if
    the interval is within the margin: the mean "agrees". If the interval is outside the margin, the mean "differs". If
    the target has its own standard deviation, the interval is for the difference of two means (Welch, 1947).

    If the target is a single run, it varies as the values do. The interval is then the prediction interval, the mean
    ± t s sqrt(1 + 1/n), and the target is "within the spread" of the values or "outside the spread".

    Anything else is "undecided", and so are fewer than three values.

    Args:
        error: the standard deviation of the `runs` values of which the target is the mean, or the standard error of the
            target if their number is not known.
        runs: the number of values behind the target; None if it is not known.

    Raises:
        ValueError: a value is NaN.
    """
    refuse_nan(values)
    half_width = _half_width([value for value in values if math.isfinite(value)], error, runs)
    if half_width is None:
        return Equivalence("undecided", None, None)
    finite = [value for value in values if math.isfinite(value)]
    mean = math.fsum(finite) / len(finite)
    low, high = mean - half_width, mean + half_width
    if len(values) < FEWEST_SEEDS or len(finite) < len(values):
        return Equivalence("undecided", low, high)
    if runs == 1:
        return Equivalence("within the spread" if low <= target <= high else "outside the spread", low, high)
    return Equivalence(agreement_within(low, high, target, margin), low, high)


def _half_width(values: Sequence[float], error: float, runs: int | None) -> float | None:
    """Return half the width of the 90 % interval of `equivalence`; None for fewer than two values."""
    n = len(values)
    if n < 2:
        return None
    from scipy.special import stdtrit

    variance = statistics.variance(values)
    own = variance * (1 + 1 / n) if runs == 1 else variance / n
    printed = 0.0 if runs == 1 else error**2 / (runs or 1)
    if own + printed == 0:
        return 0.0
    # Without a known number of runs, the published error counts as exact, because its degrees of freedom are unknown.
    freedom = welch_freedom([own, printed], [n, runs if runs and runs > 1 else math.inf])
    return float(stdtrit(freedom, 1 - LEVEL)) * math.sqrt(own + printed)


def welch_freedom(shares: Sequence[Variance], sizes: Sequence[float]) -> Any:
    """Return Welch and Satterthwaite's degrees of freedom of a difference of means.

    Args:
        shares: each sample's variance divided by its size, as numbers or as arrays for many pairs of samples; not all
            are 0.
        sizes: the samples' sizes; infinity for a variance that is known exactly.
    """
    whole: Variance = sum(shares[1:], shares[0])
    # Only ratios are squared, because squares of small numbers underflow to zero.
    lost = sum((share / whole) ** 2 / (size - 1) for share, size in zip(shares, sizes, strict=True))
    return math.inf if isinstance(lost, float) and lost == 0 else 1 / lost


def agreement_within(low: float | None, high: float | None, target: float, margin: float) -> Agreement:
    """Return whether an interval is within a target's margin ("agrees") or outside it ("differs")."""
    if low is None or high is None:
        return "undecided"
    if target - margin <= low and high <= target + margin:
        return "agrees"
    return "differs" if low > target + margin or high < target - margin else "undecided"


MOST, FEWEST_OF_ALL = 0.8, 0.2
"""The shares of seeds, or of pairs of seeds, above which a statement holds and below which it does not.

They are 80 and 20 %, because up to five seeds must then agree, while of ten one may fail without a fault of the
method. Of the 99 claims that results.db of November 2026 decides, 70 % would turn two verdicts, and 90 % one.
"""
Conclusion = Literal["held", "depends on the seed", "did not hold"]


@dataclass(frozen=True)
class Share:
    """The share of the seeds, or of the pairs of seeds, for which a statement about curves holds.

    Attributes:
        value: the share, from 0 to 1; a tie counts half.
        count: the number of seeds or pairs.
        unit: "seed" or "pair".
        seeds: the number of seeds; in a comparison of two models, the smaller number.
    """

    value: float
    count: int
    unit: Literal["seed", "pair"]
    seeds: int

    @property
    def conclusion(self) -> Conclusion:
        """The verdict: "held" above 80 %, "did not hold" below 20 %, and otherwise "depends on the seed"."""
        if self.value > MOST:
            return "held"
        return "did not hold" if self.value < FEWEST_OF_ALL else "depends on the seed"

    @property
    def holds(self) -> bool:
        return self.conclusion == "held"

    @property
    def is_hollow(self) -> bool:
        """Whether there are too few seeds for a verdict."""
        return self.seeds < FEWEST_SEEDS

    def __str__(self) -> str:
        unit = f"{self.unit}{'s' * (self.count != 1)}"
        if self.unit == "seed":
            return f"{round(self.value * self.count)} of {self.count} {unit}"
        return f"{100 * self.value:.0f} % of {self.count} {unit}"


def share_of_seeds(holds: Iterable[bool]) -> Share:
    """Return the share of the seeds for which a statement holds; 0 without seeds."""
    each = list(map(bool, holds))
    return Share(sum(each) / max(1, len(each)), len(each), "seed", len(each))


SeedValue = TypeVar("SeedValue")


def share_of_pairs(
    own: Sequence[SeedValue], others: Sequence[SeedValue], score: Callable[[SeedValue, SeedValue], float | None]
) -> Share:
    """Return the mean score of all pairs of seeds, one from each model; 0 without pairs.

    Only the seeds of pairs with a score count, because the others decide nothing.

    Args:
        score: returns 1 if the statement holds for a pair, 0 if it does not, 0.5 for a tie, and None for a pair that
            cannot be compared.
    """
    scores = {
        (i, j): value
        for i, seed in enumerate(own)
        for j, other in enumerate(others)
        if (value := score(seed, other)) is not None
    }
    seeds = min(len({i for i, _ in scores}), len({j for _, j in scores}))
    return Share(math.fsum(scores.values()) / max(1, len(scores)), len(scores), "pair", seeds)


def lowest(shares: Sequence[Share]) -> Share:
    """Return the share that decides a statement with several comparisons: the lowest one, with the fewest seeds."""
    decisive = min(shares, key=lambda share: (share.value, share.seeds))
    return replace(decisive, seeds=min(share.seeds for share in shares))


def lower(value: float, other: float) -> float:
    """Return 1 if a value is lower than another, 0.5 for a tie, and 0 otherwise, also for NaN and two infinities."""
    if value == other:
        return 0.5 if math.isfinite(value) else 0.0
    return float(value < other)


def refuse_nan(values: Sequence[float]) -> None:
    if any(map(math.isnan, values)):
        raise ValueError("a value is NaN: it has no rank; a run that diverged is infinity")
