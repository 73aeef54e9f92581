"""The check of the API's arguments."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, ParamSpec, TypeVar, cast

from orthobench.options.arguments import (
    A_COUNT,
    A_FILE,
    A_FOLDER,
    A_LIMIT,
    A_PLACE,
    A_SEED,
    A_TRUTH,
    LARGEST_SEED,
    SOME_FILES,
    SOME_TEXTS,
    ArgumentKind,
    BackendName,
    ComparedValue,
    DeviceName,
    LoggedSplit,
    Preset,
    ReportFormat,
    WhichWeights,
    label,
    location,
    model,
    models,
    named_location,
    not_negative,
    parameters,
    places,
    read,
    real,
    seeds,
    task,
    values,
    whole,
    word,
)
from orthobench.options.run_options import RunOptions

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


def _display(value: Any) -> Any:
    if not isinstance(value, type) and hasattr(value, "on_stop_request"):  # an import of Display would be circular
        return value
    raise ValueError


A_DATABASE = (location, "a file or an SQLAlchemy URL")
A_LABEL = (label, "a number or a name")
A_MAPPING = (_mapping, "a dictionary of settings by name, such as {'hidden_size': 64}")
ARGUMENTS: dict[str, ArgumentKind] = {
    "task": (task, "the name of a task, such as 'adding', or data, 'array:data.npz' or Data(...)"),
    "model": (model, "the name of a model, such as 'scornn', or the class of a layer"),
    "models": (models, "the name of a model or the class of a layer, or a list of them"),
    "seed": A_SEED,
    "first_seed": A_SEED,
    "seeds": (seeds, f"a number of seeds of at least 1, or a list of whole numbers from 0 to {LARGEST_SEED}"),
    "preset": Preset,
    "db": A_DATABASE,
    "history": A_DATABASE,
    "databases": (places, "a database, or a list of them"),
    "hub": (named_location, "ORG/NAME, hf://ORG/NAME, or the path of a folder such as ./runs"),
    "files": (_mapping, "a dictionary of paths by setting"),
    "labels": (_mapping, "a dictionary of names by model, such as {'cell.py:MyCell': 'Ours'}"),
    "settings": A_MAPPING,
    "grid": (values, "a dictionary of lists by setting, such as {'learning_rate': [1e-3, 1e-4]}"),
    "options": (_options, "SweepOptions(...), or RunOptions(...)"),
    "match_parameters": (parameters, "a number of parameters, such as 15_000, or a model of the sweep"),
    "paper": (word, "the key of a paper, such as 'helfrich2018'"),
    "table": A_LABEL,
    "figure": A_LABEL,
    "name": (word, "a name"),
    "to": (named_location, "tensorboard[:DIR], mlflow[:DIR|URI], trackio[:DIR] or wandb[:DIR]"),
    "split": LoggedSplit,
    "scale": (real, "a number"),
    "older_than": (not_negative, "a number of days of at least 0"),
    "port": (whole(0, 65_535), "a whole number from 0 to 65535"),
    "jobs": A_LIMIT,
    "display": (_display, "Display(), or an object of a class derived from it"),
    "plugins": SOME_FILES,
    "data_folder": A_FOLDER,
    "folder": A_FOLDER,
    "device": DeviceName,
    "backend": BackendName,
    "value": ComparedValue,
    "form": ReportFormat,
    "weights": WhichWeights,
    "weights_at": A_PLACE,
    **dict.fromkeys(("where", "only", "names", "selections", "columns", "kinds"), SOME_TEXTS),
    **dict.fromkeys(("trials", "tune", "match_state", "steps", "batch"), A_COUNT),
    **dict.fromkeys(("baseline", "path", "file", "out", "commentary"), A_FILE),
    **dict.fromkeys(("force", "extend", "dry_run", "prune", "db_only", "for_update"), A_TRUTH),
    **dict.fromkeys(("fail_on_speed", "retest", "paired", "bold_best", "all_versions"), A_TRUTH),
}
"""The kind of each argument, for all functions."""


def checked(**special: ArgumentKind) -> Callable[[Callable[P, T]], Callable[P, T]]:
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
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError as error:
                raise TypeError(f"{function.__name__}() {error}") from None
            for name, value in bound.arguments.items():
                kind = kinds.get(name)
                if kind is not None and (value is not None or signature.parameters[name].default is not None):
                    bound.arguments[name] = read(name, value, kind)
            return function(*bound.args, **bound.kwargs)

        return cast(Callable[P, T], call)

    return wrap
