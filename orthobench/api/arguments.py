"""Validation of the API's arguments, by their names, on entry. Hyper-parameters are validated elsewhere."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from orthobench.arguments import (
    A_COUNT,
    A_FOLDER,
    A_LIMIT,
    A_SEED,
    A_TRUTH,
    LARGEST_SEED,
    SOME_FILES,
    SOME_TEXTS,
    BackendName,
    DeviceName,
    Kind,
    Preset,
    WhichWeights,
    location,
    places,
    read,
    seeds,
    word,
    words,
)
from orthobench.options import RunOptions

P = ParamSpec("P")
T = TypeVar("T")


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    raise ValueError


def _options(value: Any) -> Any:
    if isinstance(value, RunOptions):
        return value
    raise ValueError


A_MAPPING = (_mapping, "a dictionary of settings by name, such as {'hidden_size': 64}")
ARGUMENTS: dict[str, Kind] = {
    "task": (word, "the name of a task, such as 'adding'"),
    "model": (word, "the name of a model, such as 'scornn'"),
    "models": (words, "the name of a model, or a list of names"),
    "seed": A_SEED,
    "first_seed": A_SEED,
    "seeds": (seeds, f"a number of seeds of at least 1, or a list of whole numbers from 0 to {LARGEST_SEED}"),
    "preset": Preset,
    "db": (location, "a file or an SQLAlchemy URL"),
    "databases": (places, "a database, or a list of them"),
    "settings": A_MAPPING,
    "grid": (_mapping, "a dictionary of lists by setting, such as {'learning_rate': [1e-3, 1e-4]}"),
    "options": (_options, "SweepOptions(...), or RunOptions(...)"),
    "where": SOME_TEXTS,
    "only": SOME_TEXTS,
    "trials": A_COUNT,
    "jobs": A_LIMIT,
    "plugins": SOME_FILES,
    "data_folder": A_FOLDER,
    "device": DeviceName,
    "backend": BackendName,
    "weights": WhichWeights,
    **dict.fromkeys(
        ("force", "extend", "dry_run", "prune", "db_only", "for_update", "fail_on_speed", "retest"), A_TRUTH
    ),
}
"""The kind of each argument, for all functions."""


def checked(**special: Kind) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Validate the arguments of an API function by their names, before the function runs.

    An argument whose default is None may be None.

    Args:
        special: the arguments whose kind differs from `ARGUMENTS` in this function; None switches the check off.
    """
    kinds = {**ARGUMENTS, **special}

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                kind = kinds.get(name)
                if kind is not None and (value is not None or signature.parameters[name].default is not None):
                    bound.arguments[name] = read(name, value, kind)
            return function(*bound.args, **bound.kwargs)

        return cast(Callable[P, T], call)

    return wrap
