"""Export tables as CSV, JSON, Markdown, LaTeX and pandas DataFrames."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import pandas as pd

from orthobench.analysis.conditions import Condition
from orthobench.analysis.paper_tables import Cell, PaperTable
from orthobench.analysis.statistics import Summary
from orthobench.errors import UsageError
from orthobench.reporting.html import load_views
from orthobench.reporting.pages import PaperView, leaderboard
from orthobench.reporting.scope import Scope
from orthobench.store import Store

Format = Literal["csv", "json", "markdown", "latex"]
MINUS, PLUS_MINUS = "−", "±"


@dataclass(frozen=True)
class Sheet:
    """A table in two forms: flat records for programs, and cells of text for readers."""

    title: str
    records: list[dict[str, Any]]
    header: list[str]
    rows: list[list[str]]


def sheets(view: PaperView) -> list[Sheet]:
    """Return a paper's tables: printed beside measured."""
    return [_paper_sheet(part.table) for part in view.artifacts if part.table]


def paper_table(store: Store, paper: str, name: str, variant_keys: Mapping[str, str]) -> pd.DataFrame:
    """Return a table of a paper, printed beside measured: one row per printed number.

    Columns: row, column, model, parameters, printed, printed_error, quoted, lost, measured, measured_half_width, seeds,
    difference, verdict, command, tags. `measured` is the mean over the finished seeds, in the metric's unit;
    `measured_half_width` that of its 95 % interval; `difference` is measured minus printed.

    Args:
        paper: the paper's key, such as "helfrich2018".
        name: the table's number ("1") or whole name ("table 1").
        variant_keys: by the identity of each paper's experiment, the variant of its runs.

    Raises:
        UsageError: the paper or the table is unknown.
    """
    _, (view,), _ = load_views(store, Scope(paper=paper), variant_keys)
    tables = {part.artifact.name: part.table for part in view.artifacts if part.table}
    table = tables.get(f"table {name}") or tables.get(name)
    if table is None:
        raise UsageError(f"{paper} has no table {name}; it has {', '.join(tables) or 'none'}")
    sheet = _paper_sheet(table)
    return pd.DataFrame(sheet.records).drop(columns=["paper", "artifact"])


def condition_sheet(condition: Condition) -> Sheet:
    """Return the results under a condition, the best first, then the variants without a finished run."""
    ranked = [row.variant for row in leaderboard(condition)]
    labels = {variant.label for variant in ranked}
    tagged = any(variant.tags for variant in condition.variants)
    everything = ranked + [variant for variant in condition.variants if variant.label not in labels]
    records = [
        {
            "task": condition.task,
            "condition": condition.key,
            "model": variant.run.model,
            "variant": variant.label,
            "parameters": variant.run.parameter_count,
            "metric": condition.metric.name,
            "seeds": len(variant.finished),
            "diverged": variant.diverged,
            **_numbers("final", variant.final),
            **_numbers("best", variant.best),
            **_numbers("seconds_per_epoch", variant.seconds_per_epoch),
            "tags": ", ".join(variant.tags),
        }
        for variant in everything
    ]
    rows = [
        [
            variant.label,
            f"{variant.run.parameter_count:,}",
            spread(variant.final),
            spread(variant.best),
            f"{len(variant.finished)} of {len(variant.runs)}",
            spread(variant.seconds_per_epoch),
            *([", ".join(variant.tags)] if tagged else []),
        ]
        for variant in everything
    ]
    metric = condition.metric.name
    header = ["model", "parameters", f"{metric}, final", f"{metric}, best", "seeds", "s / epoch"]
    header += ["tags"] if tagged else []
    return Sheet(condition.title, records, header, rows)


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
            **_numbers("measured", cell.measured),
            "seeds": cell.measured.n if cell.measured else 0,
            "difference": cell.difference,
            "verdict": cell.verdict,
            "command": cell.command,
            "tags": ", ".join(cell.tags),
        }
        for row in table.rows
        for label, cell in row.cells.items()
    ]
    labels = [column.label for column in table.columns]
    header = ["model", "parameters", *(f"{label}: {what}" for label in labels for what in ("printed", "measured"))]
    rows = [
        [row.label, row.parameters, *(text for label in labels for text in _pair(row.cells.get(label)))]
        for row in table.rows
    ]
    return Sheet(f"{table.paper.key}, {table.artifact.name}: {table.artifact.title}", records, header, rows)


def _pair(cell: Cell | None) -> tuple[str, str]:
    if cell is None:
        return "", ""
    printed = cell.printed
    text = "lost" if printed.lost else printed.outcome or f"{printed.value:g}"
    if printed.error is not None:
        text += f" {PLUS_MINUS} {printed.error:g}"
    measured = f"{spread(cell.measured)} ({cell.verdict})" if cell.measured else cell.verdict
    return text + (" (quoted)" if printed.quoted else ""), measured


def _numbers(name: str, summary: Summary | None) -> dict[str, float | None]:
    """Return a summary as two columns: mean, and half width of its 95 % interval."""
    if summary is None:
        return {name: None, f"{name}_half_width": None}
    return {name: summary.mean, f"{name}_half_width": summary.half_width}


def spread(summary: Summary | None) -> str:
    """Return the mean and the half width of its interval as text; empty without a measurement."""
    return "" if summary is None else str(summary)


def write(form: Format, tables: Sequence[Sheet]) -> str:
    """Return the tables as text in this format."""
    return WRITERS[form](tables)


def _csv(tables: Sequence[Sheet]) -> str:
    records = [record for sheet in tables for record in sheet.records]
    return pd.DataFrame(records, dtype=object).map(_inert).to_csv(index=False)


def _inert(value: Any) -> Any:
    """Return text that no spreadsheet takes for a formula; other values unchanged."""
    return f"'{value}" if isinstance(value, str) and value[:1] in ("=", "+", "-", "@", "\t", "\r") else value


def _json(tables: Sequence[Sheet]) -> str:
    return json.dumps([{"title": sheet.title, "rows": sheet.records} for sheet in tables], indent=2) + "\n"


def _markdown(tables: Sequence[Sheet]) -> str:
    def line(cells: Sequence[str]) -> str:
        return "| " + " | ".join(_markdown_text(cell) for cell in cells) + " |"

    parts = []
    for sheet in tables:
        rule = "|" + " --- |" * len(sheet.header)
        body = "\n".join([line(sheet.header), rule, *map(line, sheet.rows)])
        title = f"**{_markdown_text(sheet.title)}**\n\n" if sheet.title else ""
        parts.append(f"{title}{body}\n")
    return "\n".join(parts)


def _markdown_text(text: str) -> str:
    """Escape the characters that are markup."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))


LATEX = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "≈": r"$\approx$",
    PLUS_MINUS: r"$\pm$",
    MINUS: "$-$",
}


def _latex(tables: Sequence[Sheet]) -> str:
    parts = []
    for sheet in tables:
        cells = [[_latex_text(cell) for cell in row] for row in sheet.rows]
        frame = pd.DataFrame(cells, columns=[_latex_text(heading) for heading in sheet.header])
        table = frame.style.hide(axis="index").to_latex(
            column_format="l" + "r" * (len(sheet.header) - 1),
            caption=_latex_text(sheet.title),
            position_float="centering",
            hrules=True,
        )
        parts.append(f"% \\usepackage{{booktabs}}\n{table}")
    return "\n".join(parts)


def _latex_text(text: str) -> str:
    return "".join(LATEX.get(character, character) for character in " ".join(text.split()))


WRITERS: dict[Format, Callable[[Sequence[Sheet]], str]] = {
    "csv": _csv,
    "json": _json,
    "markdown": _markdown,
    "latex": _latex,
}
