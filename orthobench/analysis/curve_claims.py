"""Check claims about metrics over training: ends, drops and their order, results and times."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise

import numpy as np
import pandas as pd

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.paper_tables import TIMES, values
from orthobench.analysis.statistics import CurveEnd, curve_end, side
from orthobench.papers import Claim

Verdict = tuple[bool, str]
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
    against = side(curve_ends(claim, variant), limit)
    return against.holds, f"ends at {in_words(ends(claim, variant))}, limit {limit:.3g}; {against}"


def _ends_between(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that every run ends between `factor` times the baseline and the baseline."""
    low, high, numbers = (
        claim.factor * baseline(claim, variant),
        AT_BASELINE * baseline(claim, variant),
        ends(claim, variant),
    )
    holds = bool(numbers) and all(low <= value <= high for value in numbers)
    return holds, f"ends at {in_words(numbers)}; limits {low:.3g} and {high:.3g}"


def _settles_above(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric comes down to the baseline, and never below `factor` times the baseline."""
    low, high, numbers = (
        claim.factor * baseline(claim, variant),
        AT_BASELINE * baseline(claim, variant),
        ends(claim, variant),
    )
    lowest = min((float(series.min()) for series in curves(claim, variant)), default=math.nan)
    holds = lowest >= low and max(numbers, default=math.nan) <= high
    return holds, f"lowest {lowest:.3g}, limit {low:.3g}; ends at {in_words(numbers)}, limit {high:.3g}"


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
    started = [series[series.index > 0] for series in curves(claim, variant)]
    starts = [float(series.iloc[0]) / baseline(claim, variant) for series in started if len(series)]
    last = [end / baseline(claim, variant) for end in ends(claim, variant)]
    holds = bool(starts) and all((2 - AT_BASELINE <= start <= AT_BASELINE) == near for start in starts)
    holds = holds and max(last) <= AT_BASELINE
    return holds, f"first test after the start: {in_words(starts)} of the baseline; ends at {in_words(last)} of it"


def _stay(series: pd.Series, level: float) -> float:
    """Return the iterations between coming down to the baseline and leaving it for good measure, a tenth below it."""
    return first_below(series, (2 - AT_BASELINE) * level) - first_below(series, AT_BASELINE * level)


def _stays_at(claim: Claim, variant: VariantData, others: list[VariantData], long: bool = True) -> Verdict:
    """Check that the metric stays at the baseline for at least (else: at most) `factor` iterations, and then drops."""
    stays = [_stay(series, baseline(claim, variant)) for series in curves(claim, variant)]
    if not stays or not all(math.isfinite(stay) for stay in stays):
        return False, "never drops below the baseline"
    holds = all(stay >= claim.factor if long else stay <= claim.factor for stay in stays)
    return holds, f"{in_words(stays)} iterations at the baseline; limit {claim.factor:g}"


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
    """Check that every seed is earlier than all seeds of the others at all three levels; with `later`, later.

    The way leads from the baseline to the lowest end of all. With `departure` it is its beginning, and leads to 0.
    """
    everyone = [variant, *others]
    parts, low = (DEPARTURE, 0.0) if departure else (DROP, _lowest_end(claim, everyone))
    if low > 0.5:
        return False, f"no curve drops: the lowest ends at {low:.2g} of the baseline"
    at = [[_at(claim, each, part, low) for part in parts] for each in everyone]
    own, *rivals = at
    pairs = [pair for rival in rivals for pair in zip(own, rival, strict=True)]
    if later:
        holds = all(max(earlier) < min(late) < math.inf for late, earlier in pairs)
    else:
        holds = all(max(early) < min(late) for early, late in pairs)
    text = "; ".join(
        f"{each.label}: {', '.join(map(_iterations, levels))}" for each, levels in zip(everyone, at, strict=True)
    )
    return holds, f"iterations at {', '.join(f'{part:g}' for part in parts)} of the way down: {text}"


def _at(claim: Claim, variant: VariantData, part: float, low: float) -> list[float]:
    """Return every run's first iteration at a part of the way down; infinity without runs."""
    return [at for (at,) in _falls(claim, variant, [part], low)] or [math.inf]


def _iterations(at: Sequence[float]) -> str:
    return in_words(at, ".0f", "never")


def _listed(variants: Sequence[VariantData], values_of: Sequence[Sequence[float]]) -> str:
    return "; ".join(
        f"{variant.label}: {in_words(numbers)}" for variant, numbers in zip(variants, values_of, strict=True)
    )


def _begins(claim: Claim, variant: VariantData) -> bool:
    """Return whether every run drops at least a tenth below the baseline."""
    return all(math.isfinite(at) for at in _at(claim, variant, DROP[0], 0.0))


def _durations(claim: Claim, variant: VariantData) -> list[float]:
    """Return the iterations of every run's drop, from a tenth to nine tenths of the way from the baseline to 0."""
    fallen = _falls(claim, variant, (DROP[0], DROP[-1]))
    return [end - start if math.isfinite(end) else math.inf for start, end in fallen]


def _slower(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that every drop takes longer than all drops of the others, or does not end; it has started."""
    everyone = [variant, *others]
    own, *rivals = (_durations(claim, each) or [math.inf] for each in everyone)
    holds = _begins(claim, variant) and all(max(rival) < min(own) for rival in rivals)
    durations = (
        f"{each.label}: {_iterations(numbers)}" for each, numbers in zip(everyone, [own, *rivals], strict=True)
    )
    return holds, f"iterations from 0.1 to 0.9 of the way down to 0: {'; '.join(durations)}"


def _drops_within(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that every drop is over after `factor` epochs."""
    longest = max(_durations(claim, variant), default=math.inf) / variant.run.iterations_per_epoch
    words = f"takes {longest:.2g} epochs" if math.isfinite(longest) else "does not end"
    return longest <= claim.factor, f"the drop from 0.1 to 0.9 of the way down to 0 {words}; limit {claim.factor:g}"


def _setbacks(claim: Claim, variant: VariantData) -> list[tuple[float, float]]:
    """Return for every run the sum of its changes for the worse, and the progress, without its start.

    The start ends where the metric has come down to the baseline, or for rising metrics at the first test in training.
    """
    sums = []
    sign = _sign(claim, variant)
    for series in curves(claim, variant):
        start = max(1.0, first_below(series, AT_BASELINE * baseline(claim, variant))) if sign > 0 else 1.0
        course = [sign * value for value in series[series.index >= start]]
        if end := curve_end(course):
            rises = math.fsum(max(0.0, after - before) for before, after in pairwise(course))
            sums.append((rises, course[0] - end.value))
    return sums


def _sign(claim: Claim, variant: VariantData) -> float:
    """Return 1 where lower values of the claim's metric are better, else -1."""
    metric = variant.run.declared(claim.metric) if claim.metric else variant.run.main_metric
    return 1.0 if metric is None else metric.sign


def _rougher(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the setbacks of every run, in baselines, exceed those of all the others' runs; all of them drop."""
    everyone = [variant, *others]
    own, *rivals = ([back / baseline(claim, each) for back, _ in _setbacks(claim, each)] for each in everyone)
    holds = bool(own) and all(_begins(claim, each) for each in everyone)
    holds = holds and all(max(rival, default=math.inf) < min(own) for rival in rivals)
    return holds, f"sum of all rises, in baselines: {_listed(everyone, [own, *rivals])}"


def _smooth(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the setbacks are at most `factor` times the progress; there is some."""
    shares = [setbacks / progress if progress > 0 else math.inf for setbacks, progress in _setbacks(claim, variant)]
    largest = max(shares or [math.inf])
    words = f"{largest:.2g} of the progress" if math.isfinite(largest) else "no progress"
    return largest <= claim.factor, f"sum of all setbacks: {words}; limit {claim.factor:g}"


def _returns(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric falls to `factor` times the baseline, and later rises to within a tenth of the baseline."""
    limit = claim.factor * baseline(claim, variant)
    later = [series[series.index > first_below(series, limit)] for series in curves(claim, variant)]
    if not later or not all(len(series) for series in later):
        return False, f"does not come down to {limit:.3g} before its last test"
    back = min(float(series.max()) for series in later)
    return back >= 0.9 * baseline(claim, variant), f"up to {back:.3g} after it first stands at {limit:.3g} or below"


def _late(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that the metric comes down to the baseline, and 5 % below it after `factor` epochs or later, or never."""
    passed = min(_at(claim, variant, DEPARTURE[0], 0.0)) / variant.run.iterations_per_epoch
    moment = f"after {passed:.2g} epochs" if math.isfinite(passed) else "never"
    highest = max(ends(claim, variant), default=math.nan) / baseline(claim, variant)
    holds = passed >= claim.factor and highest <= AT_BASELINE
    return holds, f"5 % below the baseline {moment}; ends at {highest:.3g} of it"


def results(claim: Claim, variant: VariantData) -> list[float]:
    """Return a result of every finished run: at the evaluation that the paper's rule selects, or the end of a curve."""
    if variant.selection == "curve" and claim.metric not in TIMES:
        return ends(claim, variant)
    return values(variant, variant.selection, claim.metric or variant.run.metric, claim.split or "test")


def _best(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that every seed is better than all seeds of the others."""
    everyone = [variant, *others]
    values_of = [results(claim, each) for each in everyone]
    own, *rivals = ([_sign(claim, variant) * value for value in each] for each in values_of)
    holds = bool(own) and all(rival and max(own) < min(rival) for rival in rivals)
    return holds, _listed(everyone, values_of)


def _worst(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that every seed is worse than all seeds of the others, which are far better than the baseline."""
    everyone, sign = [variant, *others], _sign(claim, variant)
    values_of = [results(claim, each) for each in everyone]
    own, *rivals = ([sign * value for value in each] for each in values_of)
    holds = bool(own) and all(
        rival and min(own) > max(rival) and max(rival) <= sign * _far_better(claim, other, sign)
        for rival, other in zip(rivals, others, strict=True)
    )
    return holds, _listed(everyone, values_of)


def _far_better(claim: Claim, variant: VariantData, sign: float) -> float:
    """Return half of the baseline, or twice the baseline where higher values are better."""
    return baseline(claim, variant) * (0.5 if sign > 0 else 2.0)


def _similar(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that no result differs from any of the others by more than `factor`."""
    everyone = [variant, *others]
    own, *rivals = (results(claim, each) for each in everyone)
    differences = [abs(value - other) for value in own for rival in rivals for other in rival]
    largest = max(differences, default=math.nan)
    text = f"{_listed(everyone, [own, *rivals])}; differ by at most {largest:.3g}, limit {claim.factor:g}"
    return bool(own) and all(rivals) and largest <= claim.factor, text


def _ratio(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that each of the others takes `factor` times as much, within a quarter of it; in the mean over seeds."""
    own = _mean(results(claim, variant))
    ratios = {other.label: _mean(results(claim, other)) / own for other in others}
    holds = all(abs(ratio / claim.factor - 1) <= RATIO_TOLERANCE for ratio in ratios.values())
    text = "; ".join(f"{label} {ratio:.2f} times {variant.label}" for label, ratio in ratios.items())
    return holds, f"{text}; the paper {claim.factor:g}"


def _mean(numbers: Sequence[float]) -> float:
    return statistics.fmean(numbers) if numbers else math.nan


def _fails_only_here(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that no seed passes `factor` times the baseline here, and that all are far better than it elsewhere."""
    sign = _sign(claim, variant)
    limit, here = claim.factor * baseline(claim, variant), results(claim, variant)
    elsewhere = [(_far_better(claim, other, sign), results(claim, other)) for other in others]
    holds = bool(here) and all(sign * value >= sign * limit for value in here)
    holds = holds and all(numbers and max(sign * v for v in numbers) <= sign * least for least, numbers in elsewhere)
    text = "; ".join(f"{in_words(numbers)} elsewhere, limit {least:.3g}" for least, numbers in elsewhere)
    return holds, f"{in_words(here)} here, limit {limit:.3g}; {text}"


def _grows(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    ratios = [float(series.iloc[-1]) / max(float(series.iloc[0]), 1e-300) for series in curves(claim, variant)]
    smallest = min(ratios, default=math.nan)
    return smallest >= claim.factor, f"grows by {smallest:.3g}; at least {claim.factor:g}"


def _stays_below(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    highest = max((float(series.max()) for series in curves(claim, variant)), default=math.nan)
    return highest <= claim.factor, f"highest value {highest:.3g}; limit {claim.factor:g}"


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


def _improves_with(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> Verdict:
    """Check that ends fall as the setting grows: Spearman's correlation is at most -`factor`, and the lowest is low."""
    from scipy.stats import spearmanr

    pairs = [(size, end / baseline(claim, variant)) for size, variant in by_setting for end in ends(claim, variant)]
    lowest = min((end for _, end in pairs), default=math.nan)
    correlation = float(spearmanr(np.array(pairs)).statistic) if len(pairs) > 2 else math.nan
    holds = correlation <= -claim.factor and lowest <= 0.5
    return holds, f"rank correlation {correlation:.2f}, limit {-claim.factor:g}; {_by_size(claim, by_setting)}"


def _near_best(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> Verdict:
    """Check that a share `factor` of the variants ends within a tenth of the baseline of the best, which is low."""
    numbers = [end / baseline(claim, variant) for _, variant in by_setting for end in ends(claim, variant)]
    lowest = min(numbers, default=math.nan)
    share = sum(end <= lowest + 0.1 for end in numbers) / max(1, len(numbers))
    text = f"{share:.0%} of them within a tenth of the baseline of the best, limit {claim.factor:.0%}"
    return share >= claim.factor and lowest <= 0.5, f"{text}; {_by_size(claim, by_setting)}"


def _by_size(claim: Claim, by_setting: Sequence[tuple[float, VariantData]]) -> str:
    ordered = sorted(by_setting, key=lambda pair: pair[0])
    return ", ".join(f"{size:g}: {in_words(ends(claim, variant))}" for size, variant in ordered)


JOINT_CHECKS: dict[str, Callable[[Claim, Sequence[tuple[float, VariantData]]], Verdict]] = {
    "improves_with": _improves_with,
    "near_best": _near_best,
}
"""Checks of all the claim's variants together, each with its value of the claim's setting `over`."""
