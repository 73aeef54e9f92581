"""Runs as plain records, and functions that print tables and JSON."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from orthobench.files.strict_json import dumps
from orthobench.location import Location
from orthobench.settings import text

if TYPE_CHECKING:
    from orthobench.cli.console import Console
    from orthobench.store import Run


def console() -> Console:
    """Create a console for tables, which does not wrap piped output."""
    import sys

    from orthobench.cli.console import Console

    return Console(width=None if sys.stdout.isatty() else 200)


def brief(run: Run, status: str) -> dict[str, Any]:
    """Return a run as one row of `ls`."""
    return {
        "run": run.key,
        "task": run.task,
        "model": run.model,
        "seed": run.seed,
        "status": status,
        "epochs": round(run.epochs, 2),
        "metric": run.metric,
        "final": run.final_value,
        "best": run.best_value,
        "parameters": run.parameter_count,
        "solved_at": run.solved_at,
        "tags": run.tags,
    }


def cell(value: Any) -> str:
    """Format a value for a table."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    if isinstance(value, dict):
        return " ".join(f"{name}={text(entry)}" for name, entry in value.items())
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def some_lengths(lengths: Iterable[int], trained: Iterable[int]) -> list[int]:
    """Select eight of many lengths, from the shortest to the longest, and add the lengths used in training."""
    tested = sorted(lengths)
    spread = {tested[number * (len(tested) - 1) // 7] for number in range(8)}
    return sorted(spread | {length for length in trained if length in tested})


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as aligned columns, with ? for control characters; faster than rich for thousands of rows."""
    table = [headings, *([_harmless(text) for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table))


def _harmless(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def echo_log(location: Location) -> None:
    """Warn on stderr that a copy of the SQLite file may lack rows if its write-ahead log contains some."""
    import typer
    from rich.filesize import decimal

    from orthobench.errors import shell_command
    from orthobench.store.connect import log_of, log_size

    file = location.file
    if file is not None and (size := log_size(file)):
        command = shell_command("db", "backup", "COPY", "--db", location)
        typer.echo(
            f"note: {log_of(file).name} holds {decimal(size)} that a copy of {file.name} alone may lack, as while runs "
            f"train: copy with `{command}`",
            err=True,
        )


def print_json(value: Any) -> None:
    """Print strict JSON, in which numbers that are not finite become null."""
    print(dumps(value, indent=2, default=str))
