"""Select runs by conditions on their columns and settings."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

from orthobench.analysis.variants import settings_of
from orthobench.arrays.words import task_words
from orthobench.errors import UsageError
from orthobench.options.arguments import Preset
from orthobench.plugins import Catalog, PluginKind
from orthobench.plugins.layers import without_folder
from orthobench.settings import text
from orthobench.settings.filters import Conditions, narrow
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
    if not runs or not conditions:
        return list(runs)
    if "model" in conditions:
        conditions = {**conditions, "model": tuple(map(without_folder, conditions["model"]))}
    return narrow(runs, conditions, lambda run: _Values(run, status_of), COLUMNS, possible_values)


class _Values(Mapping[str, Any]):
    """The columns and settings of a run by name, read when asked for, because conditions ask for few of them."""

    def __init__(self, run: Run, status_of: Callable[[Run], str]) -> None:
        self._run, self._status_of = run, status_of

    def __getitem__(self, name: str) -> Any:
        if name not in COLUMNS:
            return settings_of(self._run)[name]
        if name == "task":
            return task_words(self._run.task)
        if name == "status":
            return self._status_of(self._run)
        return self._run.tags if name == "tag" else getattr(self._run, name)

    def __iter__(self) -> Iterator[str]:
        return iter({**settings_of(self._run), **dict.fromkeys(COLUMNS)})

    def __len__(self) -> int:
        return len(list(iter(self)))


def find_runs(stored: Callable[..., list[Run]], conditions: Conditions, status_of: Callable[[Run], str]) -> list[Run]:
    """Return the stored runs that meet all conditions, as `select_runs` selects them.

    Only the runs of the task and of the model that the conditions name are read, unless there is none: the error's
    message lists the values that all runs have.

    Args:
        stored: returns all runs, or those of a `task` or `model` (`Reader.runs`).

    Raises:
        NoMatchError, UsageError: as for `select_runs`.
    """
    # A path may be written in several ways, so the database is only asked for plain names.
    single = {key: accepted[0] for key, accepted in conditions.items() if len(accepted) == 1}
    exact = {key: single[key] for key in ("task", "model") if single.get(key, "").isidentifier()}
    if exact:
        with suppress(UsageError):
            if runs := select_runs(stored(**exact), conditions, status_of):
                return runs
    return select_runs(stored(), conditions, status_of)


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
