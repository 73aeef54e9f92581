"""A metric over the length of the test sequences, as runs stored it at their evaluations.

A score is the metric rescaled so that chance, the task's baseline, becomes 0 and a perfect value stays 1. The same
limit thus decides whether a model holds a length, whether the task has two answers or sixty.
"""

from __future__ import annotations

from statistics import median

import numpy as np
import pandas as pd

from orthobench.analysis.aggregates import Accuracy, chance_level, scaled
from orthobench.analysis.conditions import VariantData
from orthobench.analysis.curves import Curve, curve_of_vectors, measured_at
from orthobench.analysis.logged import named
from orthobench.metric import BY_LENGTH, LENGTHS, TRAINED_LENGTHS, by_length

HELD = 0.9
"""The lowest score at which a model holds a length."""


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
