"""The names that a command line completes and checks. It loads neither torch nor SQLAlchemy nor pydantic."""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Sequence
from contextlib import suppress
from pathlib import Path

from orthobench.arrays.words import is_own_data
from orthobench.plugins import Catalog, PluginKind
from orthobench.plugins.layers import classes_of as classes_of
from orthobench.plugins.layers import without_folder as without_folder
from orthobench.store.result import Status
from orthobench.store.sqlite import OWN as OWN
from orthobench.store.sqlite import connect
from orthobench.store.sqlite import database_words as database_words
from orthobench.store.sqlite import default_database as default_database
from orthobench.system.location import Location

NEWEST = 500
"""The largest number of runs that are listed."""


def of(kind: PluginKind) -> list[str]:
    """Return the names of the tasks, models or probes that are built in or installed."""
    return Catalog().names(kind)


def statuses() -> list[str]:
    """Return what the status of a run can be."""
    return [status.value for status in Status]


def papers() -> list[str]:
    """Return the keys of the papers."""
    return sorted(file.stem for file in (Path(__file__).parent.parent / "papers").glob("*.toml"))


def runs(db: Location, start: str) -> list[tuple[str, str]]:
    """Return the keys of the newest runs that begin with these digits, each with a description.

    A database on a server is not queried, because its driver and the network are too slow for a completion.
    """
    if db.is_url or not Path(db.real).is_file():
        return []
    columns = "key, task, model, seed, status"
    query = f"SELECT {columns} FROM run WHERE substr(key, 1, ?) = ? ORDER BY created_at DESC LIMIT ?"
    with suppress(sqlite3.Error, OSError), connect(Path(db.real), mode="ro") as connection:
        rows = connection.execute(query, (len(start), start, NEWEST))
        return [(key, f"{task} {model} seed {seed} {status}") for key, task, model, seed, status in rows]
    return []


def check_names(task: str | None, models: Sequence[str], plugins: Collection[Path] = ()) -> None:
    """Refuse an unknown task or model before torch is loaded.

    Raises:
        UsageError: a name is unknown. With plugin files, nothing is checked here, because loading them needs torch.
    """
    if plugins:
        return
    catalog = Catalog()
    if task is not None and not is_own_data(task):  # which is read with its settings later
        catalog.find("task", task)
    for model in models:
        catalog.find("model", catalog.named(model))
