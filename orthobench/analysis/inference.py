"""When one sample of seeds is worse than another: the rule of `check`, `compare`, the page and the findings.

Each of two samples has a metric's values, one per seed. The *loss* is by how much the second is worse than the first,
in the metric's unit, and negative if it is better. The *margin* is the loss that is allowed: 0 between models, and in a
check three standard deviations of the first sample or what the user sets. At a level of 5 %, the second sample is

* *worse* if the loss exceeds the margin, by the permutation test of ranks, or by Welch's interval of the difference of
  the means (B. L. Welch, Biometrika 34, 1947);
* *as good* if the upper end of that interval is within the margin, and *better* if the end is below 0;
* *undecided* otherwise.

The ranks are those of the values less the margin. They still decide when one seed that fails to learn widens the
interval, and a diverged run counts as the worst value.

A check knows the direction and the margin in advance, so `verdict` tests each side at 5 %. Between models neither is
known, and the test of ranks decides alone. If the user names the first model, it is compared with each of the others,
two-sided and with Holm's adjustment. In a ranking the data choose the first one, so a single test takes in all rows
(`standings_after_first`). A model is in one of four states (`Standing`). If it and the best one solve the task, no test
is asked. Otherwise it is tested apart; worse in every seed, if the seeds are too few for the test; or
overlapping. Without a margin nothing can be shown to be as good.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from itertools import combinations, count
from typing import TYPE_CHECKING, Any

from orthobench.analysis.statistics import (
    DRAWS,
    FEWEST_SEEDS,
    LEVEL,
    Summary,
    draws_at_once,
    in_parts,
    refuse_nan,
    summarize,
    welch_freedom,
)
from orthobench.metric import Goal

if TYPE_CHECKING:
    import numpy as np

TOO_FEW = 5
"""The number of values per sample below which a comparison is called weak."""


# ---------------------------------------------------------------------- with a margin


class Verdict(StrEnum):
    """What is known of a second sample against a first one with a margin."""

    SAME = "same"
    BETTER = "better"
    WORSE = "worse"
    INCONCLUSIVE = "inconclusive"
    MISSING = "missing"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Worsening:
    """The loss of the mean (negative if better), with a lower and an upper bound, each of confidence 1 - LEVEL."""

    mean: float
    lower: float
    upper: float


def measure_loss(first: Sequence[float], second: Sequence[float], goal: Goal) -> Worsening:
    """Return Welch's interval of the loss; each sample needs at least two values, all finite."""
    sign = 1 if goal == "min" else -1
    # Not by `fmean`, because its sums of 8 and of 20 equal values are rounded to different means. 0.0 turns -0 into 0.
    loss = sign * (statistics.mean(second) - statistics.mean(first)) + 0.0
    half_width = _half_width(first, second, LEVEL)
    return Worsening(loss, loss - half_width, loss + half_width)


def verdict(first: Sequence[float], second: Sequence[float], goal: Goal, margin: float) -> tuple[Verdict, Worsening]:
    """Return whether the second sample is as good as the first, better or worse; each needs three or more values."""
    loss = measure_loss(first, second, goal)
    if loss.upper <= margin:
        return Verdict.BETTER if loss.upper < 0 else Verdict.SAME, loss
    return Verdict.WORSE if is_worse(first, second, goal, margin) else Verdict.INCONCLUSIVE, loss


def is_worse(first: Sequence[float], second: Sequence[float], goal: Goal, margin: float) -> bool:
    """Return whether the second sample is worse than the first by more than the margin."""
    if measure_loss(first, second, goal).lower > margin:
        return True
    sign = 1 if goal == "min" else -1
    ranks = compare_unpaired([sign * value + margin for value in first], [sign * value for value in second])
    # One side of a two-sided test has half its p, so the side at LEVEL is the whole test at twice LEVEL.
    return ranks is not None and ranks.first_lower > 0.5 and ranks.p <= 2 * LEVEL


def limit(values: Sequence[float], goal: Goal, margin: float) -> float:
    """Return the worst mean of a second sample that is within the margin of the first one's mean."""
    return statistics.fmean(values) + (margin if goal == "min" else -margin)


# ---------------------------------------------------------------------- without a margin


@dataclass(frozen=True)
class Comparison:
    """A comparison of two samples: a rank test, the difference of means, and how often the first is lower.

    Attributes:
        difference: the first mean minus the second, over finite values; None if a sample has none.
        smallest_p: the smallest p that samples of these sizes can give.
        first_lower: the share of pairs in which the first sample's value is lower; a tie counts half.
    """

    n: tuple[int, int]
    difference: Summary | None
    test: str
    p: float
    smallest_p: float
    first_lower: float

    @property
    def is_clear(self) -> bool:
        """Whether one sample is lower in every seed: in each pair, or each of its values than all of the other's."""
        return self.first_lower in (0.0, 1.0)

    @property
    def words(self) -> str:
        """A warning about few seeds; empty if there are enough."""
        if self.smallest_p > LEVEL:
            return "too few seeds: no difference, however large, could be significant"
        return "few seeds: a small difference will not show" if min(self.n) < TOO_FEW else ""


def compare_paired(first: Sequence[float], second: Sequence[float]) -> Comparison | None:
    """Compare pairs by the sign-flip permutation test of their signed ranks; None for fewer than two.

    A run without a value counts as infinity with the worse sign; two such runs are a tie.

    Raises:
        ValueError: a value is NaN.
    """
    refuse_nan((*first, *second))
    pairs = list(zip(first, second, strict=True))
    n = len(pairs)
    if n < 2:
        return None
    import numpy as np
    from scipy.stats import permutation_test, rankdata

    differences = np.array([0.0 if left == right else left - right for left, right in pairs])
    signed_ranks = np.sign(differences) * rankdata(abs(differences))
    exact = 2**n <= DRAWS
    tested = permutation_test(
        (signed_ranks,),
        np.mean,
        permutation_type="samples",
        n_resamples=DRAWS,
        batch=draws_at_once(n),
        vectorized=True,
        rng=0,
    )
    name = f"paired sign-flip permutation test of the ranks ({'exact' if exact else f'{DRAWS:,} draws'})"
    lower = float(np.mean((differences < 0) + (differences == 0) / 2))
    smallest = _smallest_p(n, n, paired=True)
    return Comparison((n, n), summarize(differences.tolist()), name, float(tested.pvalue), smallest, lower)


def compare_unpaired(first: Sequence[float], second: Sequence[float]) -> Comparison | None:
    """Compare independent samples by the permutation test of their ranks; None if one has fewer than two values.

    A run without a value counts as infinity with the worse sign.

    Raises:
        ValueError: a value is NaN.
    """
    refuse_nan((*first, *second))
    n, m = len(first), len(second)
    if min(n, m) < 2:
        return None

    splits = math.comb(n + m, n)
    exact = splits <= DRAWS
    ranks = _ranks((*first, *second))
    p = _exact_p(ranks, n) if exact else _drawn_p(ranks, n)
    name = f"permutation test of the ranks ({'exact' if exact else f'{DRAWS:,} draws'})"
    return Comparison((n, m), _welch(first, second), name, p, _smallest_p(n, m), _share_below(first, second))


def _share_below(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the share of all pairs in which the first value is lower; a tie counts half. No pairs are formed."""
    import numpy as np

    ordered = np.sort(second)
    from_equal, from_higher = (np.searchsorted(ordered, first, side=side) for side in ("left", "right"))
    wins = (len(second) - from_higher) + (from_higher - from_equal) / 2
    return float(wins.sum() / (len(first) * len(second)))


def _ranks(values: Sequence[float]) -> np.ndarray:
    """Return the rank of each value, counted from 1; equal values share the mean of their ranks."""
    import numpy as np

    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    ranks: np.ndarray = (np.cumsum(counts) - (counts - 1) / 2)[inverse]
    return ranks


def _exact_p(ranks: np.ndarray, n: int) -> float:
    """Return the two-sided p of the first n ranks' sum among the sums of all choices of n ranks."""
    sums = ranks[_choices(len(ranks), n)].sum(axis=1)  # exact, because ranks are multiples of 1/2
    observed = ranks[:n].sum()
    return min(1.0, 2 * float(min((sums <= observed).mean(), (sums >= observed).mean())))


def _drawn_p(ranks: np.ndarray, n: int) -> float:
    """Return the two-sided p of the first n ranks' sum among the sums of `DRAWS` random splits and its own.

    It is the p of SciPy's `permutation_test`, which takes longer to import than all the rest of a comparison.
    """
    import numpy as np

    sums = np.concatenate([ranks[rows[:, :n]].sum(axis=1) for rows in in_parts(_permutations(len(ranks)))])
    observed = ranks[:n].sum()
    extreme = min(np.count_nonzero(sums <= observed), np.count_nonzero(sums >= observed))
    return min(1.0, 2 * (extreme + 1) / (DRAWS + 1))


@cache
def _permutations(total: int) -> np.ndarray:
    """Return `DRAWS` random permutations of the indices of `total` values `[DRAWS, total]`."""
    import numpy as np

    draw, rows = np.random.default_rng(0), np.empty((DRAWS, total), np.min_scalar_type(total))
    for row in rows:
        row[:] = draw.permutation(total)
    return rows


@cache
def _choices(total: int, n: int) -> np.ndarray:
    """Return the indices of every choice of n from `total` values `[choices, n]`."""
    import numpy as np

    return np.array(list(combinations(range(total), n)))


def _welch(first: Sequence[float], second: Sequence[float]) -> Summary | None:
    """Return the difference of the means of the finite values, with Welch's 95 % interval."""
    sides = [[value for value in side if math.isfinite(value)] for side in (first, second)]
    sizes = [len(side) for side in sides]
    if min(sizes) == 0:
        return None
    difference = statistics.fmean(sides[0]) - statistics.fmean(sides[1])
    if min(sizes) == 1:
        return Summary(sum(sizes), difference)
    half_width = _half_width(sides[0], sides[1], LEVEL / 2)
    return Summary(sum(sizes), difference, half_width, difference - half_width, difference + half_width)


def _half_width(first: Sequence[float], second: Sequence[float], level: float) -> float:
    """Return half the width of Welch's interval of the difference of means, each of whose ends errs at this level."""
    from scipy.special import stdtrit

    shares = [statistics.variance(sample) / len(sample) for sample in (first, second)]
    if sum(shares) == 0:
        return 0.0
    freedom = welch_freedom(shares, [len(first), len(second)])
    return float(stdtrit(freedom, 1 - level)) * math.sqrt(sum(shares))


def holm(p_values: Sequence[float]) -> list[float]:
    """Return the p values with Holm's adjustment for the number of tests (Holm, 1979)."""
    adjusted = [0.0] * len(p_values)
    highest = 0.0
    for rank, index in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        highest = max(highest, min(1.0, (len(p_values) - rank) * p_values[index]))
        adjusted[index] = highest
    return adjusted


class Standing(StrEnum):
    """How one of several samples stands next to another, usually the best one."""

    SOLVE = "both solve it"
    APART = "tested apart"
    CLEAR = "worse in every seed"
    OVERLAPS = "overlaps"
    FEW = "few seeds"


MEANINGS = {
    Standing.SOLVE: "it and the first solve the task in every seed, so a smaller error says nothing about them",
    Standing.APART: "one test of ranks over all rows separates it from the first, at 5 %",
    Standing.CLEAR: "it is worse than the first in every seed, maybe by chance: a test of ranks needs more seeds",
    Standing.OVERLAPS: "its seeds overlap with those of the first",
    Standing.FEW: "it or the first has fewer than three seeds",
}
"""The states in words, for rankings, whose first row is the best."""

COUNTED = {
    Standing.SOLVE: "also solving it",
    Standing.APART: "tested apart",
    Standing.CLEAR: "worse in every seed",
    Standing.OVERLAPS: "overlapping",
    Standing.FEW: "with few seeds",
}
"""The states of several samples, after their number."""


def adjusted(comparisons: Sequence[Comparison | None]) -> list[float | None]:
    """Return the p values with Holm's adjustment for the number of tests; None where there is no test."""
    values = iter(holm([each.p for each in comparisons if each is not None]))
    return [None if each is None else next(values) for each in comparisons]


def standings(comparisons: Sequence[Comparison | None], both_solve: Sequence[bool]) -> list[Standing]:
    """Return the state of each comparison with the same sample, which the data did not choose.

    Samples are "tested apart" if the test of ranks, with Holm's adjustment, separates them. If it does not, although
    one is worse in every seed, the seeds are too few for the test. With three seeds of each, one of two equal samples
    is worse in every seed in one of ten comparisons; with fewer it says nothing.

    Args:
        both_solve: of each comparison, whether both samples solve their task in every seed.
    """
    return [
        _standing(each, p, solved)
        for each, p, solved in zip(comparisons, adjusted(comparisons), both_solve, strict=True)
    ]


def _standing(comparison: Comparison | None, p: float | None, both_solve: bool) -> Standing:
    if comparison is None or p is None:
        return Standing.FEW
    if min(comparison.n) < FEWEST_SEEDS:  # even if the other sample has so many that a test separates them
        return Standing.FEW
    if both_solve:
        return Standing.SOLVE
    if p <= LEVEL:
        return Standing.APART
    return Standing.CLEAR if comparison.is_clear else Standing.OVERLAPS


def standings_after_first(samples: Sequence[Sequence[float]], solve: Sequence[bool] = ()) -> list[Standing]:
    """Return for each sample but the first, which is the one with the best median, how it stands next to it.

    Since the data choose the first, it is the best by luck, too. One test of all rows takes this into account. A row is
    "tested apart" if its ranks are farther from those of the first than the farthest row's are in 95 % of rankings of
    equal models with as many seeds. Ranks are those in the two samples alone, as in Steel's and Dwass's test of all
    pairs, so that other rows cannot move two equal ones apart. In simulations with 2 to 41 equal rows of 3 to 10 seeds,
    also of two sizes, tied, skewed or failing, one row or more is tested apart in at most 5 %.

    Args:
        solve: of each sample, whether it solves its task in every seed; empty if none does.
    """
    first, *others = samples or [()]
    sizes = tuple(sorted(len(sample) for sample in samples if len(sample) >= FEWEST_SEEDS))
    compared = [compare_unpaired(first, other) for other in others]
    both_solve = [solve[0] and each for each in solve[1:]] or [False] * len(others)
    return [
        _standing(each, None if each is None else _p_in_ranking(each, sizes), solved)
        for each, solved in zip(compared, both_solve, strict=True)
    ]


def standings_in_ranking(samples: Sequence[Sequence[float]], solve: Sequence[bool] = ()) -> list[Standing | None]:
    """Return for each row of a ranking, the best first, how it stands next to the best one, whose own is None.

    The best one is the first with `FEWEST_SEEDS`, because fewer make no model the best; if none has, the first of all.

    Args:
        samples, solve: as for `standings_after_first`.
    """
    with_seeds = (len(each) >= FEWEST_SEEDS and math.isfinite(statistics.median(each)) for each in samples)
    best = next((number for number, is_enough in enumerate(with_seeds) if is_enough), 0)
    order = sorted(range(len(samples)), key=lambda number: number != best)
    states = standings_after_first([samples[number] for number in order], [solve[number] for number in order if solve])
    return [*states[:best], *([None] if samples else []), *states[best:]]


def _p_in_ranking(comparison: Comparison, sizes: tuple[int, ...]) -> float:
    """Return the p of a row next to the first one of a ranking with samples of these sizes."""
    # Most rows need no simulation, because a row that two models alone would not tell apart is not apart among many.
    if min(comparison.n) < FEWEST_SEEDS or comparison.p > LEVEL:
        return comparison.p
    return _p_of_distance(_distance(comparison.first_lower, *comparison.n), sizes)


def _p_of_distance(distance: float, sizes: tuple[int, ...]) -> float:
    farthest = _farthest_of_equals(sizes)
    return float(((farthest >= distance - 1e-9).sum() + 1) / (len(farthest) + 1))


def _distance(lower: Any, n: Any, m: Any) -> Any:
    """Return the distance of two samples' ranks from those of equal ones, in its standard deviations without ties.

    Args:
        lower: the share of the n * m pairs in which the first value is lower; numbers or arrays.
    """
    return abs(lower - 0.5) * (12 * n * m / (n + m + 1)) ** 0.5


@cache
def _farthest_of_equals(sizes: tuple[int, ...]) -> np.ndarray:
    """Return the distance of the row farthest from the first, in `DRAWS` rankings of equal models of these sizes."""
    import numpy as np

    draw, n, most, farthest = np.random.default_rng(0), np.array(sizes), max(sizes), []
    at_once = draws_at_once(len(n) * most**2)
    for start in range(0, DRAWS, at_once):
        values = draw.random((min(at_once, DRAWS - start), len(n), most))
        values[:, np.arange(most) >= n[:, None]] = np.nan  # sorted last, and in no pair lower
        values.sort(axis=2)
        rows = np.arange(len(values))
        medians = (values[:, range(len(n)), (n - 1) // 2] + values[:, range(len(n)), n // 2]) / 2
        first = medians.argmin(axis=1)
        pairs = (values[rows, first][:, None, :, None] < values[:, :, None, :]).sum(axis=(2, 3))
        distances = _distance(pairs / (n[first, None] * n), n[first, None], n)
        distances[rows, first] = 0
        farthest.append(distances.max(axis=1))
    return np.concatenate(farthest)


def seeds_of_ranking(models: int) -> int:
    """Return the fewest seeds of each of these models with which a ranking can test some of them apart.

    They suffice if a model is worse than the first in every seed; closer ones need more.
    """
    return next(n for n in count(FEWEST_SEEDS) if _p_of_distance(_distance(1.0, n, n), (n,) * models) <= LEVEL)


def deciding_seeds(comparisons: int = 1, paired: bool = False) -> int | None:
    """Return the fewest seeds of each model that can decide this many comparisons with a model that the user names.

    They suffice if the models are apart in every seed; closer ones need more. None if no number can, because there are
    more comparisons than draws allow.
    """
    return next((n for n in range(FEWEST_SEEDS, 50) if comparisons * _smallest_p(n, n, paired) <= LEVEL), None)


def _smallest_p(n: int, m: int, paired: bool = False) -> float:
    """Return the smallest p of the permutation test of ranks for samples of these sizes."""
    outcomes = 2**n if paired else math.comb(n + m, n)
    return min(1.0, 2 / outcomes) if outcomes <= DRAWS else 2 / (DRAWS + 1)


def standings_summary(found: Sequence[Standing]) -> str:
    """Count the samples in each state, such as "37 worse in every seed, 2 overlapping"; "" without samples."""
    counts = Counter(found)
    return ", ".join(f"{counts[state]} {words}" for state, words in COUNTED.items() if counts[state])


def open_seeds(found: Sequence[Standing], models: int) -> int | None:
    """Return the number of seeds that would decide what too few seeds leave open; None if nothing is.

    Args:
        models: the number of rows of the ranking that are tested together.
    """
    return seeds_of_ranking(models) if {Standing.CLEAR, Standing.FEW}.intersection(found) else None
