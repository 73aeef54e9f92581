"""Export tables as CSV, JSON, Markdown, LaTeX and pandas DataFrames."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pandas as pd

from orthobench.analysis.aggregates import Aggregate
from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.paper_tables import Cell, PaperTable
from orthobench.analysis.statistics import Median, Summary
from orthobench.analysis.variants import Variant
from orthobench.errors import UsageError
from orthobench.options.arguments import TableFormat
from orthobench.reporting.page.names import distinguishing_values, full_title
from orthobench.reporting.page.pages import PaperView, best_first, leaderboard
from orthobench.reporting.page.scope import Scope
from orthobench.reporting.page.views import load_views
from orthobench.reporting.tables.latex import latex_table
from orthobench.store import Store
from orthobench.store.export_tables import as_csv
from orthobench.system.strict_json import dump_json


@dataclass(frozen=True)
class Sheet:
    """A table in two versions: flat records for programs, and cells of text for readers.

    Attributes:
        print_header: for LaTeX, the group and the name of each column; none: the header.
        print_rows: the cells of these columns, with one number per cell.
        bold: the cells of `rows` to print in bold, by row and column.
    """

    title: str
    records: list[dict[str, Any]]
    header: list[str]
    rows: list[list[str]]
    print_header: list[tuple[str, str]] = field(default_factory=list)
    print_rows: list[list[str]] = field(default_factory=list)
    bold: Collection[tuple[int, int]] = ()


def sheets(view: PaperView) -> list[Sheet]:
    """Return a paper's tables with the published next to the measured values."""
    return [_paper_sheet(part.table) for part in view.artifacts if part.table]


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
    sheet = _paper_sheet(table)
    return pd.DataFrame(sheet.records).drop(columns=["paper", "artifact"])


def condition_sheet(condition: Condition, among: Sequence[Condition]) -> Sheet:
    """Return the results under a condition, the best first, followed by variants without a finished or diverged run.

    Args:
        among: the conditions of all tables; if several have the same title, titles and records say how they differ.
    """
    differing = {f"task_{name}": value for name, value in distinguishing_values(condition, among).items()}
    everything, ranks = ranked(condition)
    records = [
        {
            "task": condition.task,
            "condition": condition.key,
            **differing,
            "rank": ranks.get(variant.label),
            "model": variant.run.model,
            "variant": variant.label,
            "parameters": variant.run.parameter_count,
            "metric": condition.metric.name,
            "seeds": len(variant.finished),
            "diverged": variant.diverged,
            **median_columns("end_median", variant.median),
            **number_columns("end", variant.end),
            **number_columns("final", variant.final),
            **number_columns("best", variant.best),
            "better_than_baseline": variant.against_baseline and variant.against_baseline.reached,
            "tests_not_better_than_baseline": variant.against_baseline and variant.against_baseline.tests_beyond,
            "solved": variant.solved and variant.solved.reached,
            **number_columns("seconds_per_epoch", variant.seconds_per_epoch),
            "timed_on": variant.timed_on,
            "backends": "; ".join(variant.backends),
            "tags": ", ".join(variant.tags),
        }
        for variant in everything
    ]
    columns = {
        "rank": lambda variant: str(ranks.get(variant.label, "")),
        "model": lambda variant: variant.label,
        "parameters": lambda variant: f"{variant.run.parameter_count:,}",
        f"{condition.metric.name}, end: median [95 %]": lambda variant: shown_median(variant.median),
        "mean [95 %]": lambda variant: interval_text(variant.end),
        "final [95 %]": lambda variant: interval_text(variant.final),
        "best [95 %]": lambda variant: interval_text(variant.best),
        "seeds": seeds_of,
        "better than baseline": lambda variant: str(variant.against_baseline or ""),
        "solved": lambda variant: f"{variant.solved.reached} of {variant.solved.seeds}" if variant.solved else "",
        "s / epoch [95 %]": lambda variant: interval_text(variant.seconds_per_epoch),
        "timed on": lambda variant: variant.timed_on,
        "back ends": lambda variant: "; ".join(variant.backends),
        "tags": lambda variant: ", ".join(variant.tags),
    }
    rows = {name: [text(variant) for variant in everything] for name, text in columns.items()}
    optional = {"better than baseline", "solved", "tags"}
    shown = [name for name, texts in rows.items() if any(texts) or name not in optional]
    if not any(len(variant.backends) > 1 for variant in everything):
        shown.remove("back ends")
    if len({machine for variant in everything if (machine := variant.timed_on)}) < 2:
        shown.remove("timed on")
    return Sheet(
        full_title(condition, among),
        records,
        shown,
        [list(row) for row in zip(*(rows[name] for name in shown), strict=True)],
    )


def ranked(condition: Condition) -> tuple[list[VariantData], dict[str, int]]:
    """Return the variants, the best first, and the ranks of those that stand for their models, by label."""
    ranks = {row.variant.label: row.rank for row in leaderboard(condition) if row.rank is not None}
    return [variant for variant in best_first(condition).variants if not variant.run.is_trial], ranks


def seeds_of(variant: Variant) -> str:
    """Return in words how many of the runs are finished and how many diverged."""
    text = f"{len(variant.finished)} of {len(variant.runs)}"
    return f"{text}, {variant.diverged} diverged" if variant.diverged else text


def _paper_sheet(table: PaperTable) -> Sheet:
    records = [
        {
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
            **median_columns("median", cell.median),
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
        for row in table.rows
        for label, cell in row.cells.items()
    ]
    labels = [column.label for column in table.columns]
    whats = ("published", "measured [90 % interval]")
    header = ["model", "parameters", *(f"{label}: {what}" for label in labels for what in whats)]
    rows = [
        [row.label, row.parameters, *(text for label in labels for text in _pair(row.cells.get(label)))]
        for row in table.rows
    ]
    print_header = [("", "model"), ("", "parameters"), *((label, name) for label in labels for name in PRINTED)]
    print_rows = [
        [row.label, row.parameters, *(text for label in labels for text in _printed_cells(row.cells.get(label)))]
        for row in table.rows
    ]
    title = f"{table.paper.key}, {table.artifact.name}: {table.artifact.title}"
    return Sheet(title, records, header, rows, print_header, print_rows)


PRINTED = ("published", "measured [90 % interval]", "seeds", "verdict")
"""The LaTeX columns for each column of a paper's table."""


def _printed_cells(cell: Cell | None) -> tuple[str, str, str, str]:
    """Return the texts of a cell for its LaTeX columns (`PRINTED`)."""
    if cell is None:
        return "", "", "", ""
    return cell.printed_text, interval_text(cell.measured), seeds_of(cell.variant) if cell.variant else "0", cell.words


def _pair(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "", ""
    return cell.printed_text + (" (quoted)" if cell.printed.quoted else ""), measured_text(cell)


def measured_text(cell: Cell) -> str:
    """Return a cell's measured values with the verdict, or only the verdict."""
    variant = cell.variant
    if cell.measured is None or variant is None:
        return cell.verdict
    parts = [cell.measured.words, cell.words] if cell.measured.words else [cell.words]
    if variant.diverged:
        parts.append(f"{variant.diverged} of {len(variant.runs)} runs diverged")
    if cell.median:
        parts.append(f"median {_alone(cell.median.value)}")
    if cell.by_validation:
        parts.append(f"chosen by test; at the best validation {_alone(cell.by_validation.mean)}")
    elif cell.is_chosen_by_test:
        stops = cell.aggregation.selection == "early_stopped"
        parts.append("stopped by test" if stops else "chosen by test; without validation")
    if len(variant.backends) > 1:
        parts.append(f"pooled over back ends: {'; '.join(variant.backends)}")
    return f"{cell.measured} ({'; '.join(parts)})"


def _alone(value: float) -> str:
    """Return a number without its 95 % interval: the table's heading has the level of another interval."""
    return f"{value:.4g}" if math.isfinite(value) else "diverged"


def median_columns(name: str, value: Median | None) -> dict[str, float | None]:
    """Return a median as three columns, the value and its interval; infinity represents a diverged run."""
    low, high = (value.low, value.high) if value else (None, None)
    return {name: value.value if value else None, f"{name}_low": low, f"{name}_high": high}


def shown_median(value: Median | None) -> str:
    """Return the median with its interval as text; empty without a measurement."""
    if value is None:
        return ""
    return str(value) if math.isfinite(value.value) else "diverged"


def number_columns(name: str, summary: Summary | None) -> dict[str, float | None]:
    """Return a summary as three columns, the mean and its 95 % interval."""
    mean, low, high = (summary.mean, summary.low, summary.high) if summary else (None, None, None)
    return {name: mean, f"{name}_low": low, f"{name}_high": high}


def interval_text(summary: Summary | Aggregate | None) -> str:
    """Return a number and its interval as text; empty without a measurement."""
    return "" if summary is None else str(summary)


def write(form: TableFormat, tables: Sequence[Sheet]) -> str:
    """Return the tables as text in this format."""
    return WRITERS[form](tables)


def _csv(tables: Sequence[Sheet]) -> str:
    records = [record for sheet in tables for record in sheet.records]
    return as_csv(pd.DataFrame(records, dtype=object))


def _json(tables: Sequence[Sheet]) -> str:
    content = [{"title": sheet.title, "rows": sheet.records} for sheet in tables]
    return dump_json(content, indent=2) + "\n"


def _markdown(tables: Sequence[Sheet]) -> str:
    def line(cells: Iterable[str]) -> str:
        return "| " + " | ".join(cells) + " |"

    parts = []
    for sheet in tables:
        rule = "|" + " --- |" * len(sheet.header)
        rows = [
            line([f"**{cell}**" if (row, column) in sheet.bold else cell for column, cell in enumerate(cells)])
            for row, cells in enumerate([*map(_markdown_text, cells)] for cells in sheet.rows)
        ]
        body = "\n".join([line(map(_markdown_text, sheet.header)), rule, *rows])
        title = f"**{_markdown_text(sheet.title)}**\n\n" if sheet.title else ""
        parts.append(f"{title}{body}\n")
    return "\n".join(parts)


def _markdown_text(text: str) -> str:
    """Escape characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


def _latex(tables: Sequence[Sheet]) -> str:
    return "\n".join(
        latex_table(
            sheet.title,
            sheet.print_header or [("", name) for name in sheet.header],
            sheet.print_rows or sheet.rows,
            sheet.bold,
        )
        for sheet in tables
    )


WRITERS: dict[TableFormat, Callable[[Sequence[Sheet]], str]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "latex": _latex,
}
