"""The tables of a study over length: up to which length each model holds, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.over_length import length_course, length_metric
from orthobench.reporting.study_table import StudyTable

Values = NDArray[np.float64]

HELD = 0.9
"""The score below which a length is not held."""
BIN = 8
"""Neighbouring lengths whose scores are averaged, since a test has few sequences of one length."""


def length_tables(conditions: Sequence[tuple[str, Condition]]) -> list[StudyTable]:
    """Return two tables of variants by figure: the longest held length, and the median score of all test sequences.

    Args:
        conditions: each with the name of its figure; the labels of its variants are the rows.
    """
    figures = list(dict.fromkeys(figure for figure, _ in conditions))
    variants = {(variant.label, figure): variant for figure, condition in conditions for variant in condition.variants}
    labels = sorted({label for label, _ in variants}, key=str.lower)
    if not labels:
        return []

    def table(caption: str, cells: Mapping[tuple[str, str], tuple[float, str]]) -> StudyTable:
        def rank(label: str) -> float:
            return -sum(cells[label, figure][0] for figure in figures if (label, figure) in cells)

        rows = [
            (label, *(cells.get((label, figure), (0.0, "–"))[1] for figure in figures))
            for label in sorted(labels, key=rank)
        ]
        return StudyTable(caption, ("model", *figures), rows)

    seeds = sorted({len(variant.finished) for variant in variants.values()})
    many = "one finished seed" if seeds == [1] else f"{' to '.join(map(str, {seeds[0], seeds[-1]}))} finished seeds"
    scored = {cell: score for cell, variant in variants.items() if (score := _score(variant))}
    lengths_held = {cell: length for cell, variant in variants.items() if (length := _longest_held(variant))}
    return [
        table(
            f"The longest test length up to which the median seed scores at least {HELD:.0%}, in means over {BIN} "
            "lengths. The end of the tests has a plus sign.",
            lengths_held,
        ),
        table(
            f"Score of all test sequences at the end in percent: the median of {many}, and their range.",
            scored,
        ),
    ]


def _score(variant: VariantData) -> tuple[float, str] | None:
    """Return the median of the seeds' final values, and it as text with their range; None without a finished seed."""
    values = [run.final_value for run in variant.finished if run.final_value is not None]
    if not values:
        return None
    middle, low, high = (100 * float(f(values)) for f in (np.median, np.min, np.max))
    return middle, f"{middle:.1f}" if len(values) == 1 else f"{middle:.1f} ({low:.1f} to {high:.1f})"


def _longest_held(variant: VariantData) -> tuple[float, str] | None:
    """Return the longest held length and its text; None without scores by length."""
    if not length_metric(variant.traces) or not variant.finished:
        return None
    course = length_course(variant.traces, variant.runs)
    if course is None:
        return None
    length, is_end = held_length(course.x, course.median)
    return length, "none" if not length else f"{length:.0f}{'+' if is_end else ''}"


def held_length(lengths: Values, scores: Values) -> tuple[float, bool]:
    """Return the last length before the first bin with a mean score below `HELD`, and whether it is the last of all.

    0 means that the first bin is below.
    """
    longest = 0.0
    for start in range(0, len(lengths), BIN):
        part = slice(start, start + BIN)
        if np.nanmean(scores[part]) < HELD:
            return longest, False
        longest = float(lengths[part][-1])
    return longest, True
