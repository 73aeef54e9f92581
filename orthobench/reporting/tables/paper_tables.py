"""The tables of papers, with published next to measured values."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pandas as pd

from orthobench.analysis.paper_tables import PaperTable, TableCell, TableRow
from orthobench.errors import UsageError
from orthobench.reporting.account.load import load_views
from orthobench.reporting.account.paper_views import PaperView
from orthobench.reporting.account.scope import Scope
from orthobench.reporting.tables.condition_tables import seeds_of
from orthobench.reporting.tables.table import Table, table_of
from orthobench.store import Store


def paper_tables(view: PaperView, for_print: bool = False, unmeasured: bool = True) -> list[Table]:
    """Return a paper's tables with the published next to the measured values.

    Args:
        for_print: give each verdict without its notes and reason, which are too long for a column of a paper.
        unmeasured: whether to show the numbers that are not measured.
    """
    tables = [published_and_measured(part.table, for_print, unmeasured) for part in view.artifacts if part.table]
    return [table for table in tables if table.rows]


def paper_table(store: Store, paper: str, name: str, variant_keys: Mapping[str, str]) -> pd.DataFrame:
    """Return a table of a paper with published and measured values, one row per published number.

    Columns: row, column, model, parameters, printed, printed_error, quoted, lost, printed_as, measured, measured_low,
    measured_high, measured_deviation, measured_as, seeds, diverged, solved, median, median_low, median_high, rule,
    final, at_best_validation, difference, tolerances, verdict, better, limit, reason, backends, command, tags.
    `printed_as` says how the published number was computed, such as "best of 3, scaled". `measured` is computed in the
    same way, as `measured_as` says; otherwise it is the mean over the finished seeds, in the metric's unit.
    `measured_low` and `measured_high` are the 90 % interval that decides the verdict, and `measured_deviation` is the
    kind of deviation that the paper reports. `difference` is measured minus published, and `tolerances` the same in
    units of the tolerance. `rule` says which test of a run counts. `limit` says whether the published number is at the
    ceiling or at chance. `median` and its interval are given if some runs fail; a diverged run counts as the worst.

    Args:
        paper: the paper's key, such as "helfrich2018".
        name: the table's number ("1") or whole name ("table 1").
        variant_keys: the variant of each experiment's runs, by the experiment's identity.

    Raises:
        UsageError: the paper or the table is unknown.
    """
    _, (view,), *_ = load_views(store, Scope(paper=paper), variant_keys)
    tables = {part.artifact.name: part.table for part in view.artifacts if part.table}
    table = tables.get(f"table {name}") or tables.get(name)
    if table is None:
        raise UsageError(f"{paper} has no table {name}; it has {', '.join(tables) or 'none'}")
    records = published_and_measured(table).frame.to_dict("records")
    return pd.DataFrame(records).drop(columns=["paper", "artifact"])


MEDIAN = {"median": "value", "median_low": "low", "median_high": "high"}
HEADINGS = [
    "model",
    "parameters",
    "column",
    "published",
    "published as",
    "measured [90 % interval]",
    "seeds",
    "verdict",
]
REASONS = ["difference, in tolerances", "reason"]


def published_and_measured(table: PaperTable, for_print: bool = False, unmeasured: bool = True) -> Table:
    """Return one of a paper's tables, as for `paper_tables`."""
    cells = [(row, label, cell) for row in table.rows for label, cell in row.cells.items()]
    cells = [each for each in cells if unmeasured or each[-1].measured is not None]
    shown = [
        [
            row.label,
            row.parameters,
            label,
            cell.printed.text,
            ", ".join(
                filter(
                    None, (cell.aggregation.words * (cell.printed.value is not None), "quoted" * cell.printed.quoted)
                )
            ),
            str(cell.measured or ""),
            seeds_of(cell.variant) if cell.variant else "",
            cell.words if for_print and cell.measured is not None else verdict_text(cell),
            *(() if for_print else ("" if cell.tolerances is None else f"{cell.tolerances:+.2g}", cell.reason)),
        ]
        for row, label, cell in cells
    ]
    title = f"{table.paper.key}, {table.artifact.name}: {table.artifact.title}"
    frame = pd.DataFrame([_record(table, *cell) for cell in cells], dtype=object)
    return replace(table_of(title, HEADINGS if for_print else HEADINGS + REASONS, shown), frame=frame)


def _record(table: PaperTable, row: TableRow, label: str, cell: TableCell) -> dict[str, Any]:
    return {
        "paper": table.paper.key,
        "artifact": table.artifact.name,
        "row": row.label,
        "column": label,
        "model": row.model,
        "parameters": row.parameters,
        "printed": cell.printed.value,
        "printed_error": cell.printed.error,
        "quoted": cell.printed.quoted,
        "lost": cell.printed.lost,
        "printed_as": cell.aggregation.words,
        "measured": cell.measured.value if cell.measured else None,
        "measured_low": cell.measured.low if cell.measured else None,
        "measured_high": cell.measured.high if cell.measured else None,
        "measured_deviation": cell.measured.deviation if cell.measured else None,
        "measured_as": cell.measured.words if cell.measured else "",
        "seeds": cell.measured.n if cell.measured else 0,
        "diverged": cell.variant.diverged if cell.variant else 0,
        "solved": cell.variant.solved.reached if cell.variant and cell.variant.solved else None,
        **{name: getattr(cell.median, part, None) for name, part in MEDIAN.items()},
        "rule": cell.rule,
        "final": cell.final.mean if cell.final else None,
        "at_best_validation": cell.by_validation.mean if cell.by_validation else None,
        "difference": cell.difference,
        "tolerances": cell.tolerances,
        "verdict": cell.verdict,
        "better": cell.better,
        "limit": cell.limit,
        "reason": cell.reason,
        "backends": "; ".join(cell.variant.backends) if cell.variant else "",
        "command": cell.command,
        "tags": ", ".join(cell.tags),
    }


def verdict_text(cell: TableCell) -> str:
    """Return the verdict on a cell, with what a reader has to know about its number."""
    variant = cell.variant
    if cell.measured is None or variant is None:
        return cell.verdict
    parts = [cell.measured.words, cell.words] if cell.measured.words else [cell.words]
    if variant.diverged:
        parts.append(f"diverged: {variant.diverged} of {len(variant.runs)}")
    if cell.median:
        parts.append(f"median: {_alone(cell.median.value)}")
    if cell.by_validation:
        parts += ["chosen by test", f"best validation: {_alone(cell.by_validation.mean)}"]
    elif cell.is_chosen_by_test:
        stops = cell.aggregation.selection == "early_stopped"
        parts.append("stopped by test" if stops else "chosen by test; without validation")
    if variant.backend_note:
        parts.append(variant.backend_note)
    return "; ".join(parts)


def _alone(value: float) -> str:
    """Return a number without its 95 % interval: the table's heading has the level of another interval."""
    return f"{value:.4g}" if math.isfinite(value) else "diverged"
