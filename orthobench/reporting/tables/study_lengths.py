"""The tables of a study over length: up to which length each model succeeds, and its scores."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import fits, horizons, median_horizon
from orthobench.analysis.logged import Values
from orthobench.analysis.test_lengths import HELD, as_scores, length_curve
from orthobench.errors import counted
from orthobench.reporting.page.captions import capitalized
from orthobench.reporting.tables.study_table import StudyTable
from orthobench.store import Status

UNFITTED = "not fitted"
"""Stands for the longest held length of a model that does not hold the training lengths."""
DIVERGED = "diverged"
"""Stands for the results of a model of which every run that ended diverged."""

BIN = 8
"""The number of neighbouring lengths whose scores are averaged, because a test has few sequences per length."""


def length_tables(conditions: Sequence[tuple[str, Condition]]) -> list[StudyTable]:
    """Return two tables of variants by figure: the longest held length, and the median result over all test sequences.

    Args:
        conditions: each with the name of its figure; the labels of its variants are the rows.
    """
    figures = list(dict.fromkeys(figure for figure, _ in conditions))
    variants = {(variant.label, figure): variant for figure, condition in conditions for variant in condition.variants}
    labels = sorted({label for label, _ in variants}, key=str.lower)
    if not labels:
        return []

    def table(caption: str, cells: Mapping[tuple[str, str], tuple[float, str]]) -> StudyTable:
        def rank(label: str) -> tuple[float, int]:
            known = [cells[label, figure][0] for figure in figures if (label, figure) in cells]
            return -sum(known), -len(known)

        rows = [
            (label, *(cells.get((label, figure), (0.0, "–"))[1] for figure in figures))
            for label in sorted(labels, key=rank)
        ]
        return StudyTable(caption, ("model", *figures), rows)

    counts = [len(variant.finished) for variant in variants.values() if variant.finished]
    fewest, most = min(counts, default=0), max(counts, default=0)
    seeds = counted(most, "finished seed") if fewest == most else f"{fewest} to {most} finished seeds"
    summary = f": the median of {seeds}, and their range" if most > 1 else f", with {seeds}"
    diverged = {cell: _diverged(variant) for cell, variant in variants.items()}
    lost = " Diverged: training ended because the loss grew too large or was not finite." * any(diverged.values())

    def with_diverged(texts: Mapping[tuple[str, str], tuple[float, str]]) -> dict[tuple[str, str], tuple[float, str]]:
        alone = {cell: (0.0, DIVERGED) for cell, number in diverged.items() if number}
        also = {cell: f", {diverged[cell]} {DIVERGED}" if diverged[cell] else "" for cell in texts}
        return alone | {cell: (rank, words + also[cell]) for cell, (rank, words) in texts.items()}

    results = {cell: result for cell, variant in variants.items() if (result := _result(variant))}
    lengths_held = {cell: length for cell, variant in variants.items() if (length := longest_held(variant))}
    read = f"reads the states, at least {HELD:.0%} of the way from chance to 1 (probe error_control)"
    held = f"is at least {HELD:.0%} of the way from chance to 1, in means over {BIN} lengths"
    measure = read if any(map(horizons, variants.values())) else held
    return [
        table(
            f"The longest test length up to which the median seed {measure}. A plus sign marks the longest test "
            f"length. {capitalized(UNFITTED)}: the median seed is below that already at the lengths of training.{lost}",
            with_diverged(lengths_held),
        ),
        table(
            f"The main metric of all test sequences in the last test, in percent{summary}.",
            with_diverged(results),
        ),
    ]


def _diverged(variant: VariantData) -> int:
    return sum(run.status == Status.DIVERGED for run in variant.runs)


def _result(variant: VariantData) -> tuple[float, str] | None:
    """Return the median final value over seeds, and a label such as "98.2 (95.1 to 99.0)"; None without one."""
    values = [run.final_value for run in variant.finished if run.final_value is not None]
    if not values:
        return None
    middle, low, high = (100 * float(f(values)) for f in (np.median, np.min, np.max))
    return middle, f"{middle:.1f}" if len(values) == 1 else f"{middle:.1f} ({low:.1f} to {high:.1f})"


def longest_held(variant: VariantData) -> tuple[float, str] | None:
    """Return the longest held length of the median seed and its text; None without scores by length.

    Where runs have the probe `error_control`, it is their measured horizon.
    """
    if (horizon := median_horizon(variant)) is not None:
        if not fits(variant):
            return 0.0, UNFITTED
        length = min(horizon, max(each.longest for each in horizons(variant)))
        return length, f"{length:.0f}{'+' * (horizon > length)}"
    curve = length_curve(variant) if variant.finished else None
    if curve is None:
        return None
    if fits(variant) is False:
        return 0.0, UNFITTED
    length, is_end = held_length(curve.x, as_scores(curve.median, variant))
    return length, "none" if not length else f"{length:.0f}{'+' if is_end else ''}"


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
