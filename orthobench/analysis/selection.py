"""Select runs by conditions on their columns and settings."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, get_args

from orthobench.analysis.variants import settings_of
from orthobench.arguments import Preset
from orthobench.assignments import Conditions, narrow
from orthobench.plugins import Catalog, PluginKind
from orthobench.settings import text
from orthobench.store import Run, Status

COLUMNS = ("task", "model", "seed", "preset", "status", "device", "backend", "tag", "key", "variant", "condition")


def select_runs(
    runs: Sequence[Run], conditions: Conditions, status_of: Callable[[Run], str] = lambda run: run.status
) -> list[Run]:
    """Return the runs that meet all conditions.

    Args:
        status_of: returns the current status of a run, because the stored one may be out of date.

    Raises:
        NoMatchError: no run meets them; the message lists the values that runs have.
        UsageError: a key is neither a column nor a setting of any run, or a value cannot exist.
    """

    def values_of(run: Run) -> dict[str, Any]:
        columns = {name: getattr(run, name) for name in COLUMNS if name not in ("tag", "status")}
        return {**settings_of(run), **columns, "tag": run.tags, "status": status_of(run)}

    if not runs or not conditions:
        return list(runs)
    return narrow(runs, conditions, values_of, COLUMNS, possible_values)


def possible_values(key: str) -> set[str] | None:
    """Return the values that a column of runs can have; None if any value is possible."""
    if key == "status":
        return set(map(str, Status))
    if key == "preset":
        return {*get_args(Preset), text(None)}
    if key in ("task", "model"):
        kind: PluginKind = "task" if key == "task" else "model"
        return set(Catalog().names(kind))
    return None
