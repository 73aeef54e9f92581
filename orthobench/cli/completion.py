"""Shell completion of names: tasks, models, settings and runs. It imports neither torch nor SQLAlchemy."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from textwrap import shorten
from typing import Any, get_args

import typer

from orthobench.options.arguments import Preset

HELP_WIDTH = 60
"""The largest width of a help text, because typer wraps longer ones and fish treats each line as a word."""
NEWEST = 500
"""The largest number of runs that a completion reads."""

Choice = str | tuple[str, str]
"""A word, optionally with its help text."""


def _starting(choices: Iterable[Choice], incomplete: str) -> list[Choice]:
    return [choice for choice in choices if (choice if isinstance(choice, str) else choice[0]).startswith(incomplete)]


def tasks(incomplete: str) -> list[Choice]:
    """Return the tasks that begin with the typed text."""
    return _starting(_names("task"), incomplete)


LAYERS = ("torch.nn", "torchrecurrent", "fla.layers")
"""The modules whose layers are offered before their name is typed, if they are installed."""


def models(incomplete: str) -> list[Choice]:
    """Return the models that begin with the typed text, and layers of installed packages, as in `torch.nn:GRU`."""
    return _starting(_models(incomplete), incomplete)


def model_list(incomplete: str) -> list[Choice]:
    """Return the models that continue a list such as `scornn,ls`."""
    before, comma, last = incomplete.rpartition(",")
    taken = before.split(",")
    return [f"{before}{comma}{name}" for name in _models(last) if name.startswith(last) and name not in taken]


def _models(incomplete: str) -> list[str]:
    """Return the models, and the layers of the typed module or of installed packages that begin with the text."""
    from orthobench.plugins.layers import classes_of

    if before := os.environ.get(_BEFORE_COLON):
        return classes_of(before.rpartition(",")[2])
    module, colon, _ = incomplete.rpartition(":")
    modules = [module] if colon else [each for each in LAYERS if incomplete and each.startswith(incomplete)]
    return [*_names("model"), *(f"{module}:{name}" for module in modules for name in classes_of(module))]


_BEFORE_COLON = "_ORTHOBENCH_BEFORE_COLON"


def join_colons() -> None:
    """Set aside the module of a line for bash, which splits `torch.nn:GR` at the colon and completes the rest."""
    words, at = os.environ.get("COMP_WORDS", "").split(), int(os.environ.get("COMP_CWORD", "0"))
    if os.environ.get("_ORTHOBENCH_COMPLETE") == "complete_bash" and ":" in words[max(0, at - 1) : at + 1]:
        colon = at if words[at : at + 1] == [":"] else at - 1
        os.environ[_BEFORE_COLON] = words[colon - 1]
        rest = words[colon + 1 : at + 1] or ["''"]
        os.environ |= {"COMP_WORDS": " ".join([*words[: colon - 1], *rest]), "COMP_CWORD": str(colon - 1)}


def settings(context: typer.Context, incomplete: str) -> list[Choice]:
    """Return `NAME=` for the settings of the command's task and models, or `NAME=VALUE` if the values are known."""
    from orthobench.spec.index import index

    plugins = index()["plugins"]
    known = {setting["name"]: setting for setting in index()["training"]}
    named = (context.params.get(name) for name in ("task", "model"))
    words = [*context.args, *(name or "" for name in named), *(context.params.get("models") or ())]
    for word in [
        word for text in words for word in str(text).split(",")
    ]:  # after an incomplete option, words are left in `args`
        for kind in ("task", "model"):
            known |= {setting["name"]: setting for setting in plugins.get(f"{kind}/{word}", {}).get("settings", ())}
    name, equals, _ = incomplete.partition("=")
    if equals and name in known:
        return _starting([f"{name}={value}" for value in known[name]["choices"]], incomplete)
    return _starting([(f"{name}=", shorten(known[name]["meaning"], HELP_WIDTH)) for name in sorted(known)], incomplete)


def runs(context: typer.Context, incomplete: str) -> list[Choice]:
    """Return the keys of the newest runs in the database given by `--db`, each with a description.

    A database on a server is not queried, because its driver and the network are too slow for completion.
    """
    from orthobench.store.sqlite import connect, default_database
    from orthobench.system.location import Location

    database = Location.of(context.params.get("db") or default_database(writes=False))
    if database.is_url or not Path(database.real).is_file():
        return []
    columns = "key, task, model, seed, status"
    query = f"SELECT {columns} FROM run WHERE substr(key, 1, ?) = ? ORDER BY created_at DESC LIMIT ?"
    with suppress(sqlite3.Error, OSError), connect(Path(database.real), mode="ro") as connection:
        rows = connection.execute(query, (len(incomplete), incomplete, NEWEST))
        return [(key, f"{task} {model} seed {seed} {status}") for key, task, model, seed, status in rows]
    return []


def cited(context: typer.Context, incomplete: str) -> list[Choice]:
    """Return the tasks, models and runs that begin with the typed text."""
    return [*tasks(incomplete), *models(incomplete), *runs(context, incomplete)]


def plugins(incomplete: str) -> list[Choice]:
    """Return the tasks, models and probes that begin with the typed text."""
    return _starting([*_names("task"), *_names("model"), *_names("probe"), "training"], incomplete)


def papers(incomplete: str) -> list[Choice]:
    """Return the keys of the papers that `orthobench reproduce` knows."""
    folder = Path(__file__).parent.parent / "papers"
    return _starting(sorted(file.stem for file in folder.glob("*.toml")), incomplete)


def column(name: str) -> Callable[[str], list[Choice]] | None:
    """Return the function that completes the values of a filter."""
    return {"task": tasks, "model": models, "status": _statuses, "preset": _presets}.get(name)


def _statuses(incomplete: str) -> list[Choice]:
    from orthobench.store.result import Status

    return _starting([status.value for status in Status], incomplete)


def _presets(incomplete: str) -> list[Choice]:
    return _starting(get_args(Preset), incomplete)


def _names(kind: Any) -> list[str]:
    from orthobench.plugins import Catalog

    return Catalog().names(kind)
