"""Functions that print tables."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from itertools import zip_longest
from typing import Any

import typer
from rich.cells import cell_len, chop_cells
from rich.filesize import decimal

from orthobench import api, display
from orthobench.errors import shell_command
from orthobench.options.arguments import UNITS
from orthobench.options.assignments import text

PIPED = 100_000
"""The width of a console without a terminal, in columns, at which nothing is wrapped or left out."""


def console() -> display.Console:
    """Create a console for tables, which does not wrap piped output."""
    return display.Console(width=None if sys.stdout.isatty() else PIPED)


def cell(value: Any) -> str:
    """Format a value for a table."""
    if isinstance(value, str):  # the most frequent, in lists of thousands of runs
        return value if value.isprintable() else harmless(value)
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(harmless, map(str, value)))
    if isinstance(value, dict):
        return harmless(" ".join(f"{name}={text(entry)}" for name, entry in value.items()))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def some_lengths(lengths: Iterable[int], trained: Iterable[int]) -> list[int]:
    """Select eight of many lengths, from the shortest to the longest, and add the lengths used in training."""
    tested = sorted(lengths)
    spread = {tested[number * (len(tested) - 1) // 7] for number in range(8)}
    return sorted(spread | {length for length in trained if length in tested})


GAP = 2
"""The columns of the terminal between two columns of a table."""
NAME, TEXT = 18, 12
"""The widths down to which names and texts fold, before other columns are left out."""


def print_table(
    headings: Sequence[str],
    rows: Iterable[Sequence[str]],
    optional: Sequence[str] = (),
    folds: Mapping[str, int] | None = None,
    right: Collection[str] = (),
    styles: Mapping[tuple[int, str], str] | None = None,
    one_line: bool = False,
) -> list[str]:
    """Print a table no wider than the terminal, and return the headings of its columns.

    A file or a pipe gets everything. A narrow terminal gets the columns that fit, and no number is ever cut. Where not
    even the columns fit that are not optional, each cell has a line, `heading: text`.

    Args:
        optional: the headings of columns that may be left out, the most needed first.
        folds: the least widths of columns whose cells may fold, by heading.
        right: the headings of columns that are aligned to the right.
        styles: the styles of cells, by the number of the row and the heading.
        one_line: cut the cells that would fold, so that each row is one line.
    """
    out, folds, styles = console(), folds or {}, styles or {}
    table = [[*headings], *(row if "".join(row).isprintable() else [*map(harmless, row)] for row in rows)]
    natural = [max(map(cell_len, column)) for column in zip(*table, strict=True)]
    widths = _widths(headings, natural, out.width, optional, folds)
    if not widths:
        records = [
            "\n".join(f"{heading}: {value}" for heading, value in zip(headings, row, strict=True) if value)
            for row in table[1:]
        ]
        out.print("\n\n".join(records))
        return [*headings]
    lines, spans, length = [], [], 0
    for number, row in enumerate(table, -1):  # the row of headings is -1
        cells = [_cell_lines(row[at], width, one_line) for at, width in widths.items()]
        for parts in zip_longest(*cells, fillvalue=""):
            line = ""
            for (at, width), part in zip(widths.items(), parts, strict=True):
                blanks = " " * (width - cell_len(part))
                line += blanks if headings[at] in right else ""
                if style := styles.get((number, headings[at])):
                    spans.append((style, length + len(line), length + len(line) + len(part)))
                line += part + (" " * GAP if headings[at] in right else blanks + " " * GAP)
            lines.append(line.rstrip())
            length += len(lines[-1]) + 1
    shown = display.Text("\n".join(lines))
    for span in spans:
        shown.stylize(*span)
    out.print(shown, soft_wrap=True)
    return [headings[at] for at in widths]


def _cell_lines(value: str, width: int, one_line: bool) -> list[str]:
    """Fold a cell, at blanks if it has some."""
    if cell_len(value) <= width:
        return [value]
    if one_line:
        return [f"{chop_cells(value, width - 1)[0]}…"]
    return [part.plain.rstrip() for part in display.Text(value).wrap(console(), width, overflow="fold")]


def _widths(
    headings: Sequence[str], natural: Sequence[int], room: int, optional: Sequence[str], folds: Mapping[str, int]
) -> dict[int, int]:
    """Return the widths of the columns to show, by their numbers; none if those that must be shown do not fit."""
    least = [min(width, folds.get(name, width)) for name, width in zip(headings, natural, strict=True)]
    widths = {at: least[at] for at, name in enumerate(headings) if name not in optional}
    room -= sum(widths.values()) + GAP * (len(widths) - 1)
    if room < 0:
        return {}
    for at in map(headings.index, optional):
        if least[at] + GAP > room:
            break
        widths[at] = least[at]
        room -= least[at] + GAP
    folded = sorted((at for at in widths if natural[at] > least[at]), key=natural.__getitem__)
    for number, at in enumerate(folded):
        more = min(natural[at] - least[at], room // (len(folded) - number))
        widths[at] += more
        room -= more
    return dict(sorted(widths.items()))


RUN_COLUMNS = ("run", "task", "model", "seed", "status", "epochs", "metric", "final", "best", "parameters")
OPTIONAL_COLUMNS = ("status", "seed", "task", "metric", "best", "epochs", "parameters")
"""The columns of a list of runs that a wider terminal gets, the first one first."""
KEY_DIGITS = 8
"""The digits of a key on a terminal, which name a run as all sixteen do."""
SETTINGS = 20
"""The least width at which a terminal shows the beginning of the settings."""


def print_runs(runs: Sequence[Mapping[str, Any]], further: Sequence[str] = ()) -> None:
    """Print a list of runs, one line each.

    Args:
        further: columns after those of `RUN_COLUMNS`.
    """
    columns = {name: [cell(run[name]) for run in runs] for name in (*RUN_COLUMNS, *further)}
    if sys.stdout.isatty():
        columns["run"] = [key[:KEY_DIGITS] for key in columns["run"]]
    optional = (*OPTIONAL_COLUMNS, *(name for name in further if name in columns))
    folds = {"model": NAME, "settings": SETTINGS}
    print_table([*columns], [*zip(*columns.values(), strict=True)], optional, folds, one_line=True)


def harmless(text: str) -> str:
    """Return a text with ? for characters that control a terminal, because a run may be a stranger's."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def echo_log(location: api.Location) -> None:
    """Warn on stderr that a copy of the SQLite file may lack rows if its write-ahead log contains some."""
    file, log = location.file, api.stored.unfolded_log(location)
    if file is not None and log is not None:
        command = shell_command("db", "backup", "COPY", "--db", location)
        typer.echo(
            f"note: {log[0].name} holds {decimal(log[1])} that a copy of {file.name} alone may lack, as while runs "
            f"train: copy with `{command}`",
            err=True,
        )


LEAST_COLUMNS = 3
"""The number of columns of a summary that every terminal shows: model, value and metric."""


def print_summary(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a summary; a narrow terminal leaves out its last columns."""
    if records:
        headings = [*records[0]]
        rows = [[cell(record[name]) for name in headings] for record in records]
        print_table(headings, rows, optional=headings[LEAST_COLUMNS:], folds={"model": NAME})


def show_duration(seconds: float) -> str:
    """Format a duration in its two largest units: 2d 4h, 1h 30m, 4m 10s, 12s."""
    rest = max(1, round(seconds))
    parts: list[tuple[int, str]] = []
    for unit, size in UNITS.items():
        count, rest = divmod(rest, size)
        if parts or count:
            parts.append((count, unit))
    return " ".join(f"{count}{unit}" for count, unit in parts[:2] if count)


def result_line(run: api.Run) -> str:
    """Describe the result of a run in one line."""
    final, chosen, baseline = (cell(value) for value in (run.final_value, run.best_value, run.baselines[run.metric]))
    which = "at the best validation" if run.is_judged_by_validation else "best"
    text = f"run {run.key} {run.status}: {run.metric} {final}, {which} {chosen}, baseline {baseline}"
    return f"{text} ({run.message})" if run.message and run.is_final else text
