"""A metric over the length of the test sequences, as runs stored it at their evaluations.

A score is the metric rescaled so that chance, the task's baseline, becomes 0 and a perfect value stays 1. The same
limit thus decides whether a model holds a length, whether the task has two answers or sixty.
"""

from __future__ import annotations

import re
from statistics import median

import numpy as np
import pandas as pd

from orthobench.analysis.aggregates import Accuracy, chance_level, scaled
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.curves import Curve, curve_of_vectors, measured_at
from orthobench.analysis.logged import Values, named
from orthobench.analysis.scores import LOWEST, score_of
from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS, by_length

HELD = 0.9
"""The lowest score at which a model holds a length."""
BIN = 8
"""The number of neighbouring lengths whose scores are averaged, because a test has few sequences per length."""
AT_MULTIPLE = re.compile(r"(.+)_(\d+)t")
"""The name of a metric at a multiple of the trained length T; see `Metric.at_multiple`."""


def length_metric(variant: VariantData) -> str:
    """Return the name of the metric for which a variant has vectors over length; "" without one."""
    names = [name for name in named(variant.traces, f"{BY_LENGTH}/") if name not in (LENGTHS, TRAINED_LENGTHS)]
    return min(names, default="").partition("/")[2]


def as_scores(values: Accuracy, variant: VariantData) -> Accuracy:
    """Return a variant's values of the metric over length as scores; without a baseline they stay as they are."""
    return scaled(values, chance_level(variant.run.baselines.get(length_metric(variant))) or 0.0)


def trained_range(variant: VariantData) -> tuple[float, float] | None:
    """Return the shortest and the longest length of the training sequences; None if they are not stored."""
    ranges = variant.traces.get(TRAINED_LENGTHS)
    return (float(ranges.values[0][0]), float(ranges.values[0][1])) if ranges is not None else None


def fits(variant: VariantData) -> bool | None:
    """Return whether the median seed holds the training lengths; None if no test has them."""
    trained, curves = trained_range(variant), last_by_length(variant)
    if trained is None:
        return None
    shares = [
        float(as_scores(own.to_numpy(float), variant).mean())
        for curve in curves.values()
        if len(own := curve[(curve.index >= trained[0]) & (curve.index <= trained[1])])
    ]
    return median([*shares, *[0.0] * variant.diverged]) >= HELD if shares else None


def length_curve(variant: VariantData, bin_size: int = 1) -> Curve | None:
    """Return the metric of a variant's last evaluation over length, with the band over seeds; None without one.

    A seed does not count at a length that its test sequences lack.

    Args:
        bin_size: number of neighbouring lengths whose values are averaged, for each seed, at their mean length.
    """
    key = ("length curve", bin_size)
    if key not in variant.cache:
        variant.cache[key] = _length_curve(variant, bin_size)
    curve: Curve | None = variant.cache[key]
    return curve


def _length_curve(variant: VariantData, bin_size: int) -> Curve | None:
    columns = last_by_length(variant)
    if not columns:
        return None
    lengths = next(iter(columns.values())).index
    if all(column.index.equals(lengths) for column in columns.values()):  # as in most variants
        # Not `DataFrame(columns)`, because aligning rows that have the same lengths takes most of the time of a curve.
        table = pd.DataFrame(np.column_stack(list(columns.values())), index=lengths)
    else:
        table = pd.DataFrame(columns).sort_index()
    if bin_size > 1:
        bins = np.arange(len(table)) // bin_size
        table = table.groupby(bins).mean().set_index(table.index.to_series().groupby(bins).mean())
    return curve_of_vectors(table.index.to_numpy(float), table.to_numpy(float).T, columns, variant.runs)


def last_by_length(variant: VariantData) -> dict[int, pd.Series]:
    """Return the metric of each run's last evaluation by length, in the order of lengths, by the run's id.

    A run that ended before the others counts only if its task was solved.
    """
    if "by length" not in variant.cache:
        variant.cache["by length"] = _last_by_length(variant)
    measured: dict[int, pd.Series] = variant.cache["by length"]
    return measured


def _last_by_length(variant: VariantData) -> dict[int, pd.Series]:
    rows = variant.traces.get(by_length(length_metric(variant)))
    if rows is None:
        return {}
    _, at = measured_at(rows, variant.runs, last=True)
    axes = variant.traces[LENGTHS]
    lengths_of = dict(zip(zip(axes.run.tolist(), axes.iteration.tolist(), strict=True), axes.numbers(), strict=True))
    return {
        run: pd.Series(values, index=lengths_of[run, iteration]).sort_index()
        for run, iteration, values in zip(at.run.tolist(), at.iteration.tolist(), at.numbers(), strict=True)
    }


def held_length(lengths: Values, scores: Values) -> tuple[float, bool]:
    """Return the last length before the first bin with a mean score below `HELD`, and whether it is the last length.

    The length is 0 if the first bin is below. Lengths without a finite score are left out.
    """
    known = np.isfinite(scores)
    lengths, scores = lengths[known], scores[known]
    longest = 0.0
    for start in range(0, len(lengths), BIN):
        part = slice(start, start + BIN)
        if scores[part].mean() < HELD:
            return longest, False
        longest = float(lengths[part][-1])
    return longest, True


def scores_at(variant: VariantData) -> dict[int, list[float]]:
    """Return the scores (`score_of`) of a variant's finished and diverged runs by the multiple of T.

    Multiples at which no run was tested are left out. All are scores of one metric, because scores of two, such as of
    cross-entropy and of recall, would differ at equal skill. If it is the main metric, those at T are of the matrix.
    """
    found = [match for name in variant.run.metrics or {} if (match := AT_MULTIPLE.fullmatch(name))]
    if not found:
        return {}
    names = {1: found[0][1]} | {int(match[2]): match[0] for match in found}
    scores = {
        multiple: variant.solved_shares if name == variant.run.metric else _scores(variant, name)
        for multiple, name in sorted(names.items())
    }
    return {multiple: values for multiple, values in scores.items() if values}


def holds_beyond(variant: VariantData) -> bool | None:
    """Return whether the median seed holds all multiples of T at which it was tested; None without such a test."""
    beyond = [median(values) for multiple, values in scores_at(variant).items() if multiple > 1]
    return min(beyond) >= HELD if beyond else None


def _scores(variant: VariantData, name: str) -> list[float]:
    metric, baselines = variant.run.declared(name), {run.id: run.baselines.get(name) for run in variant.runs}
    assert metric is not None
    ends = {run: float(series.iloc[-1]) for run, series in variant.series_of_runs("test", name).items()}
    perfect = metric.perfect(ends.values(), baselines[variant.run.id])
    scores = [
        score_of(end, baseline, perfect)
        for run, end in ends.items()
        if (baseline := baselines[run]) is not None and perfect is not None
    ]
    return [*scores, *[LOWEST] * variant.diverged] if scores else []


def longer_metric(condition: Condition) -> str:
    """Return the metric of the tests at multiples of T; "" without one."""
    names = (name for variant in condition.variants for name in variant.run.metrics or {})
    return next((match[1] for name in names if (match := AT_MULTIPLE.fullmatch(name))), "")
