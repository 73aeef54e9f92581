"""The tables of a study's section: lengths up to which models succeed, scores, and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

import numpy as np

from orthobench.analysis.by_length import (
    as_scores,
    held_length,
    length_curve,
    scores_at,
)
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.horizons import fits, horizons, median_horizon
from orthobench.reporting.account.names import MEASURES, name_of
from orthobench.reporting.account.studies import StoredStudy
from orthobench.reporting.tables.table import Table, table_of
from orthobench.store import Benchmark

UNFITTED = "not fitted"
"""Stands for the longest held length of a model that does not hold the training lengths."""
DIVERGED = "diverged"
"""Stands for the results of a model of which every run that ended diverged."""

READ_UP_TO, HELD_UP_TO = "states read up to length", "held up to length"
"""What the numbers of the table of lengths are, with the probe `error_control` and without it."""
READ = (
    "The longest test length up to which the median seed reads the states along the way, with a score of 90 from "
    "chance, 0, to perfect, 100 (probe error_control). A plus sign marks the longest test length. Not fitted: it does "
    "not at the lengths of training."
)
HOLDS = (
    "The longest test length up to which the median seed is 90 % of the way from chance to 1, in means over some "
    "lengths. A plus sign marks the longest test length. Not fitted: it is not at the lengths of training."
)
LOST = "Diverged: training ended because the loss grew too large or was not finite."
RESULTS = (
    "The main metric of all test sequences in the last test, in percent: the median over the finished seeds, and their "
    "range."
)
LONGER = (
    "From 0, the baseline, to 100, perfect: the median over seeds; at the multiples of T from one test after training."
)
MINUTES = (
    "Minutes per epoch of 55 000 images in batches of 50, measured here and published for a Core i5-7400 with a GTX "
    "1080, with the ratio to the plain RNN of the same table."
)


def study_tables(result: StoredStudy) -> list[Table]:
    """Return the tables of a study that have data."""
    match result.study.drawing:
        case "times":
            names = result.study.names
            return [_table_3(result.record, names), _lstms(result), _equal_size(result.record, names)]
        case "state_tracking":
            return length_tables(result.conditions)
        case "longer_tests":
            return longer_table(result.conditions)
    return []


def length_tables(conditions: Sequence[tuple[str, Condition]]) -> list[Table]:
    """Return two tables of variants by figure: the longest held length, and the median result over all test sequences.

    Args:
        conditions: each with the name of its figure; the labels of its variants are the rows.
    """
    figures = list(dict.fromkeys(figure for figure, _ in conditions))
    variants = {(variant.label, figure): variant for figure, condition in conditions for variant in condition.variants}
    labels = sorted({label for label, _ in variants}, key=str.lower)
    if not labels:
        return []

    def table(caption: str, cells: Mapping[tuple[str, str], tuple[float, str]], counted: Mapping[str, str]) -> Table:
        def rank(label: str) -> tuple[float, int]:
            known = [cells[label, figure][0] for figure in figures if (label, figure) in cells]
            return -sum(known), -len(known)

        rows = [
            (label, *(cells.get((label, figure), (0.0, "–"))[1] for figure in figures))
            for label in sorted(labels, key=rank)
        ]
        headings = (": ".join(filter(None, (figure, counted[figure]))) for figure in figures)
        return table_of(caption, ("model", *headings), rows)

    diverged = {cell: variant.diverged for cell, variant in variants.items()}
    lost = f" {LOST}" if any(diverged.values()) else ""

    def with_diverged(texts: Mapping[tuple[str, str], tuple[float, str]]) -> dict[tuple[str, str], tuple[float, str]]:
        alone = {cell: (0.0, DIVERGED) for cell, number in diverged.items() if number}
        also = {cell: f", {diverged[cell]} {DIVERGED}" if diverged[cell] else "" for cell in texts}
        return alone | {cell: (rank, words + also[cell]) for cell, (rank, words) in texts.items()}

    results = {cell: result for cell, variant in variants.items() if (result := _result(variant))}
    lengths_held = {cell: length for cell, variant in variants.items() if (length := longest_held(variant))}
    are_read = any(map(horizons, variants.values()))
    measures = {figure: MEASURES.get(condition.task, "") for figure, condition in conditions}
    lengths = dict.fromkeys(figures, READ_UP_TO if are_read else HELD_UP_TO)
    return [
        table((READ if are_read else HOLDS) + lost, with_diverged(lengths_held), lengths),
        table(RESULTS, with_diverged(results), measures),
    ]


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


def longer_table(conditions: Sequence[tuple[str, Condition]]) -> list[Table]:
    """Return the table of all variants: the median score at each multiple, in percent, by figure."""
    cells: dict[str, dict[tuple[str, int], float]] = {}
    for figure, condition in conditions:
        for variant in condition.variants:
            for multiple, values in scores_at(variant).items():
                cells.setdefault(variant.label, {})[figure, multiple] = 100 * median(values)
    columns = list(dict.fromkeys(column for row in cells.values() for column in row))
    if not columns:
        return []
    labels = sorted(cells, key=lambda label: (-sum(cells[label].values()), label))
    rows = [
        (label, *(f"{cells[label][column]:.0f}" if column in cells[label] else "–" for column in columns))
        for label in labels
    ]
    headings = ("model", *(f"{figure} {multiple}T" for figure, multiple in columns))
    return [table_of(LONGER, headings, rows)]


def _table_3(record: Benchmark, names: Mapping[str, str]) -> Table:
    rows = [row for row in _rows(record, "table 3") if row["printed"] is not None]
    base = next(row for row in rows if row["model"] == "rnn")
    return table_of(
        MINUTES,
        ("model", "n", f"measured on {_machine(record)}", "published", "x RNN, measured", "x RNN, published"),
        [
            (
                name_of(row["model"], names),
                str(row["hidden_size"]),
                f"{row['minutes']:.3g}",
                f"{row['printed']:.3g}",
                f"{row['minutes'] / base['minutes']:.2f}",
                f"{row['printed'] / base['printed']:.2f}",
            )
            for row in rows
        ],
    )


def _lstms(result: StoredStudy) -> Table:
    rows = [row for row in _rows(result.record, "table 3") if row["model"] == "lstm"]
    measured = [(f"here, n = {row['hidden_size']}", f"{60 * row['minutes']:.3g}") for row in rows]
    printed = [(f"published, {name}", f"{seconds:.4g}") for name, seconds in result.study.other_seconds.items()]
    return table_of(
        "The LSTM's seconds per epoch, next to the numbers on slides about AntisymmetricRNN (sizes not stated).",
        ("LSTM", "seconds"),
        [*measured, *printed],
    )


def _equal_size(record: Benchmark, names: Mapping[str, str]) -> Table:
    rows = _rows(record, "equal size")
    base = next(row for row in rows if row["model"] == "rnn")
    return table_of(
        "The same for every model at one size.",
        (f"model, n = {base['hidden_size']}", "minutes", "x RNN"),
        [
            (name_of(row["model"], names), f"{row['minutes']:.3g}", f"{row['minutes'] / base['minutes']:.2f}")
            for row in rows
        ],
    )


def _rows(record: Benchmark, shape: str) -> list[dict[str, Any]]:
    shapes = record.results["shapes"]
    rows: list[dict[str, Any]] = next(entry["rows"] for entry in shapes if entry["shape"]["name"] == shape)
    return rows


def _machine(record: Benchmark) -> str:
    threads = "" if record.environment.facts["accelerator"] else f", {record.results['threads']} threads"
    return record.environment.machine + threads
