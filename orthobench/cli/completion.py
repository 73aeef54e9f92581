"""Shell completion of names: tasks, models, settings and runs. It imports neither torch nor SQLAlchemy."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from textwrap import shorten
from typing import get_args

import typer

from orthobench import api
from orthobench.options.arguments import Preset

HELP_WIDTH = 60
"""The largest width of a help text, because typer wraps longer ones and fish treats each line as a word."""

Choice = str | tuple[str, str]
"""A word, optionally with its help text."""


def _starting(choices: Iterable[Choice], incomplete: str) -> list[Choice]:
    return [choice for choice in choices if (choice if isinstance(choice, str) else choice[0]).startswith(incomplete)]


def tasks(incomplete: str) -> list[Choice]:
    """Return the tasks that begin with the typed text."""
    return _starting(api.names.of("task"), incomplete)


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
    if before := os.environ.get(_BEFORE_COLON):
        return api.names.classes_of(before.rpartition(",")[2])
    module, colon, _ = incomplete.rpartition(":")
    modules = [module] if colon else [each for each in LAYERS if incomplete and each.startswith(incomplete)]
    return [
        *api.names.of("model"),
        *(f"{module}:{name}" for module in modules for name in api.names.classes_of(module)),
    ]


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
    named = (context.params.get(name) for name in ("task", "model"))
    # After an incomplete option, words are left in `args`.
    words = [*context.args, *(name or "" for name in named), *(context.params.get("models") or ())]
    known = api.descriptions.settings_of([word for text in words for word in str(text).split(",")])
    name, equals, _ = incomplete.partition("=")
    if equals and name in known:
        return _starting([f"{name}={value}" for value in known[name]["choices"]], incomplete)
    return _starting([(f"{name}=", shorten(known[name]["meaning"], HELP_WIDTH)) for name in sorted(known)], incomplete)


def runs(context: typer.Context, incomplete: str) -> list[Choice]:
    """Return the keys of the newest runs in the database given by `--db`, each with a description."""
    db = context.params.get("db") or api.names.default_database(writes=False)
    return list(api.names.runs(db, incomplete))


def cited(context: typer.Context, incomplete: str) -> list[Choice]:
    """Return the tasks, models and runs that begin with the typed text."""
    return [*tasks(incomplete), *models(incomplete), *runs(context, incomplete)]


def plugins(incomplete: str) -> list[Choice]:
    """Return the tasks, models and probes that begin with the typed text."""
    return _starting(
        [*api.names.of("task"), *api.names.of("model"), *api.names.of("probe"), "training"],
        incomplete,
    )


def papers(incomplete: str) -> list[Choice]:
    """Return the keys of the papers that `orthobench reproduce` knows."""
    return _starting(api.names.papers(), incomplete)


def column(name: str) -> Callable[[str], list[Choice]] | None:
    """Return the function that completes the values of a filter."""
    return {"task": tasks, "model": models, "status": _statuses, "preset": _presets}.get(name)


def _statuses(incomplete: str) -> list[Choice]:
    return _starting(api.names.statuses(), incomplete)


def _presets(incomplete: str) -> list[Choice]:
    return _starting(get_args(Preset), incomplete)
