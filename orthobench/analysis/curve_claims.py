"""Check claims about metrics over training: ends, drops and their order, results and times.

A check looks at each seed, or at each pair of seeds, one from each model: a paper's figure shows one curve of each.
It returns the share of those that look as stated, with what was measured in words.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.paper_tables import TIMES, values
from orthobench.analysis.statistics import (
    CurveEnd,
    Share,
    lower,
    lowest,
    share_of_pairs,
    share_of_seeds,
    side,
)
from orthobench.papers import Claim

Verdict = tuple[Share, str]
Check = Callable[[Claim, VariantData, list[VariantData]], Verdict]

AT_BASELINE = 1.1
"""A curve has come down to the baseline where it is at most this many times the baseline."""
DROP, DEPARTURE = (0.1, 0.5, 0.9), (0.05, 0.1, 0.2)
"""Parts of the way down at which curves are compared: for their drops, and for when they leave the baseline."""
RATIO_TOLERANCE = 0.25


def _logged(claim: Claim, variant: VariantData) -> tuple[str, str]:
    """Return the split and the name under which runs log the claim's metric."""
    return claim.split or ("probe" if claim.metric else "test"), claim.metric or variant.run.metric


def curves(claim: Claim, variant: VariantData) -> list[pd.Series]:
    """Return the claim's metric of every finished run, by iteration."""
    return list(variant.series_of_runs(*_logged(claim, variant)).values())


def baseline(claim: Claim, variant: VariantData) -> float:
    """Return the baseline of the claim's metric if it has one, else of the task's main one; NaN without one."""
    main = variant.run.baselines.get(variant.run.metric)
    value = variant.run.baselines.get(claim.metric, main) if claim.split else main
    return math.nan if value is None else float(value)


def curves_to_ends(claim: Claim, variant: VariantData) -> list[tuple[pd.Series, float]]:
    """Return the claim's metric of every finished run with its end."""
    return list(zip(curves(claim, variant), ends(claim, variant), strict=True))


def curve_ends(claim: Claim, variant: VariantData) -> list[CurveEnd]:
    """Return the end of the claim's metric of every finished run."""
    return list(variant.ends_of(*_logged(claim, variant)).values())


def ends(claim: Claim, variant: VariantData) -> list[float]:
    """Return the median of the last tests of every finished run."""
    return [end.value for end in curve_ends(claim, variant)]


def first_below(series: pd.Series, limit: float) -> float:
    """Return the first iteration at or below the limit; infinity for a run that stays above it."""
    return float(min(series.index[series <= limit], default=math.inf))


def _ends_below(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    limit = claim.factor * baseline(claim, variant)
    numbers = ends(claim, variant)
    against = side(curve_ends(claim, variant), limit)
    text = f"ends at {in_words(numbers)}, limit {limit:.3g}; below it: {against}"
    return share_of_seeds(end <= limit for end in numbers), text


def _ends_between(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a run ends between `factor` times the baseline and the baseline."""
    low, high = _band(claim, variant)
    numbers = ends(claim, variant)
    share = share_of_seeds(low <= end <= high for end in numbers)
    return share, f"ends at {in_words(numbers)}; limits {low:.3g} and {high:.3g}"


def _settles_above(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric comes down to the baseline, and never below `factor` times the baseline."""
    low, high = _band(claim, variant)
    lows = [float(series.min()) for series in curves(claim, variant)]
    numbers = ends(claim, variant)
    share = share_of_seeds(least >= low and end <= high for least, end in zip(lows, numbers, strict=True))
    return share, f"lowest {in_words(lows)}, limit {low:.3g}; ends at {in_words(numbers)}, limit {high:.3g}"


def _band(claim: Claim, variant: VariantData) -> tuple[float, float]:
    """Return `factor` times the baseline, and what still counts as the baseline."""
    level = baseline(claim, variant)
    return claim.factor * level, AT_BASELINE * level


def in_words(numbers: Sequence[float], form: str = ".3g", not_finite: str = "") -> str:
    """Return the lowest and the highest number, such as "2 to 3", or one where they look the same.

    Args:
        form: the format of a number.
        not_finite: the word for a number that is not finite; empty: as Python writes it.
    """
    if not numbers:
        return "nothing"
    low, high = (
        not_finite if not_finite and not math.isfinite(value) else f"{value:{form}}"
        for value in (min(numbers), max(numbers))
    )
    return low if low == high else f"{low} to {high}"


def _starts_near(claim: Claim, variant: VariantData, others: list[VariantData], near: bool = True) -> Verdict:
    """Compare the first test after training began with the baseline; one away from it has to come down later."""
    level = baseline(claim, variant)
    started = [(series[series.index > 0], end / level) for series, end in curves_to_ends(claim, variant)]
    pairs = [(float(series.iloc[0]) / level, end) for series, end in started if len(series)]
    share = share_of_seeds(
        (2 - AT_BASELINE <= start <= AT_BASELINE) == near and end <= AT_BASELINE for start, end in pairs
    )
    starts, last = ([pair[number] for pair in pairs] for number in (0, 1))
    return share, f"starts at {in_words(starts)} of the baseline, and ends at {in_words(last)} of it"


def _stay(series: pd.Series, level: float) -> float:
    """Return the iterations between coming down to the baseline and leaving it, a tenth below; infinity if it stays.

    A run that does not come down to the baseline has NaN.
    """
    return first_below(series, (2 - AT_BASELINE) * level) - first_below(series, AT_BASELINE * level)


def _stays_at(claim: Claim, variant: VariantData, others: list[VariantData], long: bool = True) -> Verdict:
    """Check that the metric stays at the baseline for at least (else: at most) `factor` iterations, and then drops."""
    stays = [_stay(series, baseline(claim, variant)) for series in curves(claim, variant)]
    dropping = [stay for stay in stays if math.isfinite(stay)]
    share = share_of_seeds(
        math.isfinite(stay) and (stay >= claim.factor if long else stay <= claim.factor) for stay in stays
    )
    parts = [f"stays at the baseline for {in_words(dropping, ',.0f')} iterations"] if dropping else []
    if stuck := len(stays) - len(dropping):
        parts.append(f"never drops below it in {stuck} of {len(stays)} seeds")
    return share, f"{'; '.join(parts)}; limit {claim.factor:,g} iterations"


def _falls(claim: Claim, variant: VariantData, parts: Sequence[float], low: float = 0.0) -> list[list[float]]:
    """Return for every run the first iterations at these parts of the way down from the baseline.

    Args:
        low: the end of the way, as a share of the baseline.
    """
    levels = [baseline(claim, variant) * (1 - part * (1 - low)) for part in parts]
    return [[first_below(series, level) for level in levels] for series in curves(claim, variant)]


def _lowest_end(claim: Claim, variants: Sequence[VariantData]) -> float:
    """Return the lowest end of these variants' runs, as a share of the baseline, and at least 0."""
    numbers = [end / baseline(claim, variant) for variant in variants for end in ends(claim, variant)]
    return max(0.0, min(numbers, default=math.inf))


def _first(
    claim: Claim, variant: VariantData, others: list[VariantData], departure: bool = False, later: bool = False
) -> Verdict:
    """Check that a seed is earlier than one of the others at all three levels; with `later`, later.

    The way leads from the baseline to the lowest end of all. With `departure` it is its beginning, and leads to 0.
    """
    everyone = [variant, *others]
    parts, low = (DEPARTURE, 0.0) if departure else (DROP, _lowest_end(claim, everyone))
    own, *rivals = (_falls(claim, each, parts, low) for each in everyone)
    if low > 0.5:
        text = f"no curve drops: the lowest ends at {low:.2g} of the baseline"
        return lowest([share_of_pairs(own, rival, lambda first, other: 0.0) for rival in rivals]), text

    def earlier(first: list[float], other: list[float]) -> float:
        return min(map(lower, first, other))

    def after(first: list[float], other: list[float]) -> float:
        return earlier(other, first) if all(map(math.isfinite, first)) else 0.0

    shares = [share_of_pairs(own, rival, after if later else earlier) for rival in rivals]
    verb = "leaves the baseline" if departure else "falls"
    text = "; ".join(
        f"{each.label} {_moments(levels, verb)}" for each, levels in zip(everyone, (own, *rivals), strict=True)
    )
    return lowest(shares), f"{text}: {'later' if later else 'earlier'} in {_each(others, shares)}"


def _moments(at: Sequence[Sequence[float]], verb: str) -> str:
    """Return in words when runs fall: from the first level of the earliest run to the last level of the latest."""
    reached = [moment for levels in at for moment in levels if math.isfinite(moment)]
    if not reached:
        return f"never {verb}"
    words = f"{verb} after {in_words(reached, ',.0f')} iterations"
    never = sum(not math.isfinite(levels[0]) for levels in at)
    partly = sum(not math.isfinite(levels[-1]) for levels in at) - never
    counts = [f"{count} of {len(at)} seeds {how}" for count, how in ((never, "never"), (partly, "not fully")) if count]
    return f"{words} ({', '.join(counts)})" if counts else words


def _each(others: Sequence[VariantData], shares: Sequence[Share]) -> str:
    """Return the share of pairs with each of the others, in words."""
    if len(shares) == 1:
        return str(shares[0])
    return ", ".join(f"{share} with {other.label}" for other, share in zip(others, shares, strict=True))


def _iterations(at: Sequence[float]) -> str:
    return in_words(at, ",.0f", "never")


def _listed(variants: Sequence[VariantData], values_of: Sequence[Sequence[float]]) -> str:
    return "; ".join(
        f"{variant.label}: {in_words(numbers)}" for variant, numbers in zip(variants, values_of, strict=True)
    )


def _drops(claim: Claim, variant: VariantData) -> Iterator[float | None]:
    """Yield the iterations of every run's drop, from a tenth to nine tenths of the way from the baseline to 0.

    It is infinity for a drop that does not end, and None for a run that does not drop a tenth below the baseline.
    """
    for start, end in _falls(claim, variant, (DROP[0], DROP[-1])):
        yield end - start if math.isfinite(start) else None


def _slower(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a drop takes longer than one of the others, or does not end, in the pairs in which both begin.

    A run of the claim's model that does not drop is not as stated. One of the others leaves nothing to compare.
    """
    everyone = [variant, *others]
    own, *rivals = (list(_drops(claim, each)) for each in everyone)

    def longer(first: float | None, other: float | None) -> float | None:
        if first is None:
            return 0.0
        return None if other is None else lower(other, first)

    shares = [share_of_pairs(own, rival, longer) for rival in rivals]
    text = "; ".join(f"{each.label} {_durations(drops)}" for each, drops in zip(everyone, (own, *rivals), strict=True))
    return lowest(shares), f"{text}: longer in {_each(others, shares)} that drop"


def _durations(drops: Sequence[float | None]) -> str:
    actual = [drop for drop in drops if drop is not None]
    ended = [drop for drop in actual if math.isfinite(drop)]
    parts = [f"drops within {in_words(ended, ',.0f')} iterations"] if ended else []
    if endless := len(actual) - len(ended):
        parts.append(f"drops without end in {endless} of {len(drops)} seeds")
    if missing := len(drops) - len(actual):
        parts.append(f"does not drop in {missing} of {len(drops)} seeds")
    return ", ".join(parts)


def _drops_within(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a drop is over after `factor` epochs."""
    epochs = [math.inf if drop is None else drop / variant.run.iterations_per_epoch for drop in _drops(claim, variant)]
    ended = [drop for drop in epochs if math.isfinite(drop)]
    words = f"takes {in_words(ended, '.2g')} epochs" if ended else "does not end"
    if ended and len(ended) < len(epochs):
        words += f", and does not end for {len(epochs) - len(ended)} of {len(epochs)} seeds"
    share = share_of_seeds(drop <= claim.factor for drop in epochs)
    return share, f"the drop from a tenth to nine tenths of the way down to 0 {words}; limit {claim.factor:g}"


def _sign(claim: Claim, variant: VariantData) -> float:
    """Return 1 where lower values of the claim's metric are better, else -1."""
    metric = variant.run.declared(claim.metric) if claim.metric else variant.run.main_metric
    return 1.0 if metric is None else metric.sign


def _rises(claim: Claim, variant: VariantData) -> list[float | None]:
    """Return for every run the sum of its rises from coming down to the baseline on; None for a run without a drop."""
    level = baseline(claim, variant)
    sums: list[float | None] = []
    for series in curves(claim, variant):
        course = series[series.index >= max(1.0, first_below(series, AT_BASELINE * level))].tolist()
        begins = math.isfinite(first_below(series, (1 - DROP[0]) * level))
        sums.append(math.fsum(max(0.0, after - before) for before, after in pairwise(course)) if begins else None)
    return sums


def _rougher(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a run's rises together, in baselines, exceed those of one of the others; both drop."""
    everyone = [variant, *others]
    own, *rivals = (
        [None if rises is None else rises / baseline(claim, each) for rises in _rises(claim, each)] for each in everyone
    )

    def rougher(first: float | None, other: float | None) -> float:
        return 0.0 if first is None or other is None else lower(other, first)

    numbers = [[rises for rises in each if rises is not None] for each in (own, *rivals)]
    shares = [share_of_pairs(own, rival, rougher) for rival in rivals]
    text = f"all rises together, in baselines: {_listed(everyone, numbers)}"
    return lowest(shares), f"{text}: more in {_each(others, shares)}"


def _setback(series: pd.Series, level: float, sign: float) -> float:
    """Return the largest change for the worse from the best test so far, after the last test at the baseline.

    A run whose last test is at the baseline, or worse, has infinity: it has not left the baseline for good.

    Args:
        level: the baseline.
        sign: makes lower values better, as `Metric.sign`.
    """
    left = (2 - AT_BASELINE if sign > 0 else AT_BASELINE) * level
    course = sign * series.to_numpy()
    (at_baseline,) = np.nonzero(~(course < sign * left))
    course = course[at_baseline[-1] + 1 :] if len(at_baseline) else course
    return float((course - np.minimum.accumulate(course)).max()) if len(course) else math.inf


def _smooth(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that no setback after leaving the baseline for good exceeds `factor` times the baseline."""
    level, sign = baseline(claim, variant), _sign(claim, variant)
    setbacks = [_setback(series, level, sign) / level for series in curves(claim, variant)]
    ended = [setback for setback in setbacks if math.isfinite(setback)]
    parts = []
    if ended:
        parts.append(f"largest setback after leaving the baseline for good: {in_words(ended, '.2g')} of the baseline")
    if stuck := len(setbacks) - len(ended):
        parts.append(f"does not leave the baseline for good in {stuck} of {len(setbacks)} seeds")
    share = share_of_seeds(setback <= claim.factor for setback in setbacks)
    return share, f"{'; '.join(parts)}; limit {claim.factor:g} of the baseline"


def _returns(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric falls to `factor` times the baseline, and later rises to within a tenth of the baseline."""
    level = baseline(claim, variant)
    limit = claim.factor * level
    later = [series[series.index > first_below(series, limit)] for series in curves(claim, variant)]
    heights = [float(series.max()) if len(series) else -math.inf for series in later]
    risen = [height for height in heights if math.isfinite(height)]
    words = f"up to {in_words(risen)} after it first stands at {limit:.3g} or below" if risen else ""
    if low := len(heights) - len(risen):
        words += f"{'; ' * bool(words)}above {limit:.3g} up to the last test in {low} of {len(heights)} seeds"
    return share_of_seeds(height >= (2 - AT_BASELINE) * level for height in heights), words


def _late(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric comes down to the baseline, and 5 % below it after `factor` epochs or later, or never."""
    level, per_epoch = baseline(claim, variant), variant.run.iterations_per_epoch
    passed = [at / per_epoch for (at,) in _falls(claim, variant, DEPARTURE[:1])]
    last = [end / level for end in ends(claim, variant)]
    share = share_of_seeds(at >= claim.factor and end <= AT_BASELINE for at, end in zip(passed, last, strict=True))
    reached = [at for at in passed if math.isfinite(at)]
    moment = f"after {in_words(reached, '.2g')} epochs" if reached else "never"
    if reached and len(reached) < len(passed):
        moment += f" ({len(passed) - len(reached)} of {len(passed)} seeds never)"
    return share, f"5 % below the baseline {moment}; ends at {in_words(last)} of it"


def results(claim: Claim, variant: VariantData) -> list[float]:
    """Return a result of every finished run: at the evaluation that the paper's rule selects, or the end of a curve."""
    if variant.selection == "curve" and claim.metric not in TIMES:
        return ends(claim, variant)
    return values(variant, variant.selection, claim.metric or variant.run.metric, claim.split or "test")


def _best(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a seed is better than one of the others."""
    everyone, sign = [variant, *others], _sign(claim, variant)
    own, *rivals = (results(claim, each) for each in everyone)
    shares = [share_of_pairs(own, rival, lambda first, other: lower(sign * first, sign * other)) for rival in rivals]
    return lowest(shares), f"{_listed(everyone, [own, *rivals])}: better in {_each(others, shares)}"


def _worst(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a seed is worse than one of the others, which is far better than the baseline."""
    everyone, sign = [variant, *others], _sign(claim, variant)
    own, *rivals = (results(claim, each) for each in everyone)

    def worse(limit: float) -> Callable[[float, float], float]:
        return lambda first, other: lower(sign * other, sign * first) if sign * other <= sign * limit else 0.0

    shares = [
        share_of_pairs(own, rival, worse(_far_better(claim, other, sign)))
        for rival, other in zip(rivals, others, strict=True)
    ]
    return lowest(shares), f"{_listed(everyone, [own, *rivals])}: worse in {_each(others, shares)}"


def _far_better(claim: Claim, variant: VariantData, sign: float) -> float:
    """Return half of the baseline, or twice the baseline where higher values are better."""
    return baseline(claim, variant) * (0.5 if sign > 0 else 2.0)


def _similar(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a result differs from one of the others by no more than `factor`."""
    everyone = [variant, *others]
    own, *rivals = (results(claim, each) for each in everyone)
    shares = [share_of_pairs(own, rival, lambda first, other: abs(first - other) <= claim.factor) for rival in rivals]
    text = f"{_listed(everyone, [own, *rivals])}: differ by at most {claim.factor:g} in {_each(others, shares)}"
    return lowest(shares), text


def _ratio(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that one of the others takes `factor` times as much as a seed, within a quarter of it."""
    own = results(claim, variant)

    def is_near(first: float, other: float) -> float:
        return abs(other / first / claim.factor - 1) <= RATIO_TOLERANCE

    shares, texts = [], []
    for other in others:
        numbers = results(claim, other)
        shares.append(share_of_pairs(own, numbers, is_near))
        ratios = [value / first for first in own for value in numbers]
        texts.append(f"{other.label} {in_words(ratios, '.2f')} times {variant.label}")
    tolerance = f"within {100 * RATIO_TOLERANCE:.0f} % in {_each(others, shares)}"
    return lowest(shares), f"{'; '.join(texts)}; the paper {claim.factor:g}, {tolerance}"


def _fails_only_here(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a seed fails to pass `factor` times the baseline here, and that another is far better elsewhere."""
    sign = _sign(claim, variant)
    limit, here = claim.factor * baseline(claim, variant), results(claim, variant)
    elsewhere = [(_far_better(claim, other, sign), results(claim, other)) for other in others]

    def only_here(least: float) -> Callable[[float, float], float]:
        return lambda first, other: sign * first >= sign * limit and sign * other <= sign * least

    shares = [share_of_pairs(here, numbers, only_here(least)) for least, numbers in elsewhere]
    text = "; ".join(f"{in_words(numbers)} elsewhere, limit {least:.3g}" for least, numbers in elsewhere)
    return lowest(shares), f"{in_words(here)} here, limit {limit:.3g}; {text}: so in {_each(others, shares)}"


def _grows(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    ratios = [float(series.iloc[-1]) / max(float(series.iloc[0]), 1e-300) for series in curves(claim, variant)]
    share = share_of_seeds(ratio >= claim.factor for ratio in ratios)
    return share, f"grows by {in_words(ratios)}; at least {claim.factor:g}"


def _stays_below(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    highest = [float(series.max()) for series in curves(claim, variant)]
    share = share_of_seeds(value <= claim.factor for value in highest)
    return share, f"highest value {in_words(highest)}; limit {claim.factor:g}"


CURVE_CHECKS: dict[str, Check] = {
    "ends_below": _ends_below,
    "ends_between": _ends_between,
    "settles_above": _settles_above,
    "starts_near": _starts_near,
    "starts_away": partial(_starts_near, near=False),
    "waits": _stays_at,
    "bypasses": partial(_stays_at, long=False),
    "first": _first,
    "departs_first": partial(_first, departure=True),
    "later": partial(_first, later=True),
    "slower": _slower,
    "drops_within": _drops_within,
    "rougher": _rougher,
    "smooth": _smooth,
    "returns": _returns,
    "late": _late,
    "best": _best,
    "worst": _worst,
    "similar": _similar,
    "ratio": _ratio,
    "fails_only_here": _fails_only_here,
    "grows": _grows,
    "stays_below": _stays_below,
}


def _ends_of_seeds(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> list[list[tuple[float, float]]]:
    """Return for every seed that all the variants have the setting of each variant with its end, in baselines."""
    split, name = _logged(claim, by_setting[0][1])
    by_seed: dict[int, list[tuple[float, float]]] = {}
    for setting, variant in by_setting:
        seeds = {run.id: run.seed for run in variant.finished}
        for run, end in variant.ends_of(split, name).items():
            by_seed.setdefault(seeds[run], []).append((setting, end.value / baseline(claim, variant)))
    return [pairs for _, pairs in sorted(by_seed.items()) if len(pairs) == len(by_setting)]


def _improves_with(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> Verdict:
    """Check that ends fall as the setting grows: Spearman's correlation is at most -`factor`, and the lowest is low."""
    from scipy.stats import spearmanr

    seeds = _ends_of_seeds(claim, by_setting)
    correlations = [float(spearmanr(np.array(pairs)).statistic) if len(pairs) > 2 else math.nan for pairs in seeds]
    share = share_of_seeds(
        correlation <= -claim.factor and min(end for _, end in pairs) <= 0.5
        for correlation, pairs in zip(correlations, seeds, strict=True)
    )
    text = f"rank correlation {in_words(correlations, '.2f')}, limit {-claim.factor:g}; {_by_size(claim, by_setting)}"
    return share, text


def _near_best(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> Verdict:
    """Check that a share `factor` of the variants ends within a tenth of the baseline of the best, which is low."""
    near, lows = [], []
    for pairs in _ends_of_seeds(claim, by_setting):
        least = min(end for _, end in pairs)
        near.append(sum(end <= least + 0.1 for _, end in pairs) / len(pairs))
        lows.append(least)
    share = share_of_seeds(part >= claim.factor and least <= 0.5 for part, least in zip(near, lows, strict=True))
    parts = in_words([100 * part for part in near], ".0f")
    text = f"{parts} % of them within a tenth of the baseline of the best, limit {100 * claim.factor:.0f} %"
    return share, f"{text}; {_by_size(claim, by_setting)}"


def _by_size(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> str:
    ordered = sorted(by_setting, key=lambda pair: pair[0])
    return ", ".join(f"{size:g}: {in_words(ends(claim, variant))}" for size, variant in ordered)


JOINT_CHECKS: dict[str, Callable[[Claim, Sequence[tuple[float, VariantData]]], Verdict]] = {
    "improves_with": _improves_with,
    "near_best": _near_best,
}
"""Checks of all the claim's variants together, each with its value of the claim's setting `over`."""
