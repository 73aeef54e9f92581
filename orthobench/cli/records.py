"""Functions that print tables and JSON."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import typer
from rich.filesize import decimal

from orthobench import api, display
from orthobench.errors import shell_command
from orthobench.options.arguments import UNITS
from orthobench.options.assignments import text
from orthobench.system.location import Location
from orthobench.system.strict_json import dump_json


def console() -> display.Console:
    """Create a console for tables, which does not wrap piped output."""
    return display.Console(width=None if sys.stdout.isatty() else 200)


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


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as aligned columns, with ? for control characters; faster than rich for thousands of rows."""
    table = [headings, *(row if "".join(row).isprintable() else list(map(harmless, row)) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table))


RUN_COLUMNS = ("run", "task", "model", "seed", "status", "epochs", "metric", "final", "best", "parameters")
FIRST_COLUMNS = ("run", "model", "final", "status", "seed", "task", "metric", "best", "epochs", "parameters")
"""The columns of a list of runs in the order in which a wider terminal gets them."""
KEY_DIGITS = 8
"""The digits of a key on a terminal, which name a run as all sixteen do."""
LEAST_SETTINGS = 20
"""The least width at which a terminal shows the beginning of the settings."""


def print_runs(runs: Sequence[Mapping[str, Any]], further: Sequence[str] = ()) -> None:
    """Print a list of runs. A terminal gets the columns that fit, and a file or a pipe gets everything.

    Args:
        further: columns after those of `RUN_COLUMNS`; a terminal cuts the settings at its edge.
    """
    columns = {name: [cell(run[name]) for run in runs] for name in (*RUN_COLUMNS, *further)}
    if not sys.stdout.isatty():
        print_columns([*columns], [*zip(*columns.values(), strict=True)])
        return
    columns["run"] = [key[:KEY_DIGITS] for key in columns["run"]]
    room, shown = console().width, set()
    for name in (*FIRST_COLUMNS, *further):
        width = max(map(len, (name, *columns[name]))) + 2
        if name == "settings" and width > room >= LEAST_SETTINGS:
            columns[name] = [value if len(value) <= room else f"{value[: room - 1]}…" for value in columns[name]]
            width = room
        if width <= room:
            shown.add(name)
            room -= width
    kept = [name for name in columns if name in shown]
    print_columns(kept, [*zip(*(columns[name] for name in kept), strict=True)])


def harmless(text: str) -> str:
    """Return a text with ? for characters that control a terminal, because a run may be a stranger's."""
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def echo_log(location: Location) -> None:
    """Warn on stderr that a copy of the SQLite file may lack rows if its write-ahead log contains some."""
    file, log = location.file, api.stored.unfolded_log(location)
    if file is not None and log is not None:
        command = shell_command("db", "backup", "COPY", "--db", location)
        typer.echo(
            f"note: {log[0].name} holds {decimal(log[1])} that a copy of {file.name} alone may lack, as while runs "
            f"train: copy with `{command}`",
            err=True,
        )


def print_json(value: Any) -> None:
    """Print strict JSON, in which numbers that are not finite become null."""
    print(dump_json(value, indent=2, default=str))


def print_table(
    headings: Sequence[str], rows: Iterable[Sequence[str]], right: Sequence[str] = (), red: Collection[int] = ()
) -> None:
    """Print a table whose cells fold where the terminal is narrow.

    Args:
        right: the headings of columns that are aligned to the right.
        red: the numbers of the rows that are red.
    """
    table = display.Table(box=None)
    for heading in headings:
        table.add_column(heading, justify="right" if heading in right else "left")
    for number, row in enumerate(rows):
        table.add_row(*row, style="red" if number in red else None)
    console().print(table)


NARROW_MODEL = 20
"""The width to which the names of models may shrink, by folding, before other columns are left out."""
LEAST_COLUMNS = 3
"""The number of columns of a summary that every terminal shows: model, value and metric."""


def print_summary(records: Sequence[Mapping[str, Any]]) -> None:
    """Print a summary. In a narrow terminal the last columns are left out, because a number must not be cut."""
    if not records:
        return
    terminal, headings = console(), [*records[0]]
    widths = {name: max(len(name), *(len(cell(record[name])) for record in records)) for name in headings}
    widths["model"] = min(widths["model"], NARROW_MODEL)
    while len(headings) > LEAST_COLUMNS and sum(widths[name] + 2 for name in headings) - 2 > terminal.width:
        headings.pop()
    table = display.Table(box=None, pad_edge=False)
    for name in headings:
        table.add_column(name, no_wrap=name != "model", overflow="fold", min_width=widths[name])
    for record in records:
        table.add_row(*(cell(record[name]) for name in headings))
    terminal.print(table)


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
