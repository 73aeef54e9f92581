"""Runs as plain records, for tables and JSON."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from orthobench.store import Run, Status, Store
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.locks import is_locked


def console() -> Any:
    """A console for tables; piped output is not folded."""
    import sys

    from rich.console import Console

    return Console(highlight=False, width=None if sys.stdout.isatty() else 200)


def status(run: Run, store: Store, checkpoints: Path | str) -> str:
    """The run's state; one that says running while nobody works on it was cut off."""
    if run.status == Status.RUNNING and not is_locked(store, checkpoints_at(checkpoints, run.key)):
        return Status.INTERRUPTED
    return run.status


def brief(run: Run, store: Store, checkpoints: Path | str) -> dict[str, Any]:
    """One line of `ls`."""
    return {
        "run": run.key,
        "task": run.task,
        "model": run.model,
        "seed": run.seed,
        "status": status(run, store, checkpoints),
        "epochs": round(run.epochs, 2),
        "metric": run.metric,
        "final": run.final_value,
        "best": run.best_value,
        "parameters": run.parameter_count,
        "tags": run.tags,
    }


def cell(value: Any) -> str:
    """A value as a table shows it."""
    if value is None:
        return "-"
    if isinstance(value, list):
        return ", ".join(map(str, value))
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def print_columns(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print rows as aligned columns, fast where there are thousands; what a terminal could act on is shown as ?."""
    table = [headings, *([_harmless(text) for text in row] for row in rows)]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    print("\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in table))


def _harmless(text: str) -> str:
    return text if text.isprintable() else "".join(letter if letter.isprintable() else "?" for letter in text)


def print_json(value: Any) -> None:
    """Print strict JSON: what is not finite becomes null."""
    print(json.dumps(_finite(value), indent=2, default=str))


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [_finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
