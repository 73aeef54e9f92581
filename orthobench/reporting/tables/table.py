"""A table in two DataFrames, and how it is written as CSV, JSON, Markdown and LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

import pandas as pd

from orthobench.analysis.statistics import Median
from orthobench.options.arguments import TableFormat
from orthobench.reporting.latex import latex_table
from orthobench.store.export_tables import as_csv
from orthobench.system.strict_json import dump_json


@dataclass(frozen=True)
class Table:
    """A table: what readers see, and the values for programs.

    Attributes:
        shown: texts under headings.
        frame: values under names, with a row for each variant, number or point; empty if only readers see the table.
        bold: the cells of `shown` to print in bold, by row and column.
    """

    title: str
    shown: pd.DataFrame
    frame: pd.DataFrame = field(default_factory=pd.DataFrame)
    bold: Collection[tuple[int, int]] = ()

    @property
    def headings(self) -> tuple[str, ...]:
        return tuple(self.shown.columns)

    @property
    def rows(self) -> list[tuple[str, ...]]:
        return list(self.shown.itertuples(index=False, name=None))


def table_of(title: str, headings: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Return a table that only readers see."""
    return Table(title, pd.DataFrame([list(row) for row in rows], columns=list(headings), dtype=object))


def shown_median(value: Median | None) -> str:
    """Return the median with its interval as text; empty without a measurement."""
    if value is None:
        return ""
    return str(value) if math.isfinite(value.value) else "diverged"


def write(form: TableFormat, tables: Sequence[Table]) -> str:
    """Return the tables as text in this format."""
    match form:
        case "csv":
            # Records, because pandas would turn the whole numbers of one table into fractions where another has none.
            records = [record for table in tables for record in table.frame.to_dict("records")]
            return as_csv(pd.DataFrame(records, dtype=object))
        case "json":
            content = [{"title": table.title, "rows": table.frame.to_dict("records")} for table in tables]
            return dump_json(content, indent=2) + "\n"
        case "markdown":
            return "\n".join(map(_markdown, tables))
        case "latex":
            return "\n".join(latex_table(table.title, table.shown, table.bold) for table in tables)


def _markdown(table: Table) -> str:
    shown = table.shown.map(_escaped).set_axis(list(map(_escaped, table.headings)), axis="columns")
    for row, column in table.bold:
        shown.iloc[row, column] = f"**{_escaped(table.rows[row][column])}**"
    # Texts as they are, because tabulate would round numbers and pad cells. The rule is as short for long cells.
    body = shown.to_markdown(index=False, disable_numparse=True, stralign=None)
    body = re.sub(r"(?m)^\|[-|]+$", lambda rule: re.sub("-+", " --- ", rule[0]), body)
    return f"**{_escaped(table.title)}**\n\n{body}\n" if table.title else f"{body}\n"


def _escaped(text: str) -> str:
    """Escape characters that have a meaning in Markdown."""
    return re.sub(r"([\\`*_\[\]<>|#])", r"\\\1", " ".join(text.split()))
