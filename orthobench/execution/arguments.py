"""The arguments of the Python API that are no hyper-parameters: each is validated by its name, at the door.

The command line's parser refuses the same values. A single text counts as a list of one, and whole numbers of numpy
and pandas as numbers: a seed of 1.0, from a column with a gap, is 1, and one of 1.5 is refused.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from functools import cache, wraps
from importlib import import_module
from numbers import Integral, Real
from pathlib import Path
from typing import Annotated, Any, ParamSpec, TypeVar, cast, get_args

from pydantic import BeforeValidator, Field, TypeAdapter, ValidationError

from orthobench.errors import UsageError, unknown
from orthobench.execution import LARGEST_SEED
from orthobench.settings import check_tag

CHOICES = {
    "preset": "settings.Preset",
    "device": "training.devices.DeviceName",
    "backend": "training.devices.BackendName",
    "cuda_graph": "training.graph.GraphMode",
    "on_divergence": "training.loop.OnDivergence",
    "keep_weights": "training.keep.KeepWeights",
    "weights": "weights.content.WhichWeights",
}
"""The types whose values are the choices of an argument; they are imported when one is given."""

P = ParamSpec("P")
T = TypeVar("T")


def _whole(value: Any) -> Any:
    """Return a whole number of any type as Python's.

    Raises:
        ValueError: the value is another number, a truth value or no number.
    """
    if not isinstance(value, bool):
        if isinstance(value, Integral):
            return int(value)
        if isinstance(value, Real) and float(value).is_integer():
            return int(float(value))
    raise ValueError("no whole number")


def _real(value: Any) -> Any:
    if isinstance(value, Real) and not isinstance(value, bool):
        return float(value)
    raise ValueError("no number")


def _truth(value: Any) -> Any:
    if isinstance(value, bool) or type(value).__name__ in ("bool", "bool_"):  # numpy's
        return bool(value)
    raise ValueError("no truth value")


def _listed(value: Any) -> Any:
    """Return the entries of a list of any type; a single text or path is a list of one."""
    if isinstance(value, (str, os.PathLike)):
        return (value,)
    if isinstance(value, Iterable) and not isinstance(value, (bytes, Mapping)):
        return tuple(value)
    raise ValueError("no list")


def _seeds(value: Any) -> Any:
    """Return a number of seeds, or the seeds without repetitions."""
    if isinstance(value, (str, os.PathLike)):
        raise ValueError("a text")
    if isinstance(value, (Integral, Real)):
        return TypeAdapter(COUNT).validate_python(value)
    return tuple(dict.fromkeys(TypeAdapter(tuple[SEED, ...]).validate_python(_listed(value))))


def _database(value: Any) -> Any:
    """Return a location as text; the store explains what is wrong with an empty one."""
    if isinstance(value, os.PathLike):
        value = os.fspath(value)
    if isinstance(value, str):
        return value
    raise ValueError("no location")


def _location(value: Any) -> Any:
    if _database(value).strip():
        return _database(value)
    raise ValueError("no location")


def _file(value: Any) -> Any:
    return Path(_location(value))


def _tags(value: Any) -> Any:
    return tuple(dict.fromkeys(map(check_tag, _listed(value))))


def _options(value: Any) -> Any:
    if isinstance(value, import_module("orthobench.execution.options").ExecutionOptions):
        return value
    raise ValueError("no options")


def _mapping(value: Any) -> Any:
    if isinstance(value, Mapping):
        return value
    raise ValueError("no dictionary")


SEED = Annotated[int, BeforeValidator(_whole), Field(ge=0, le=LARGEST_SEED)]
COUNT = Annotated[int, BeforeValidator(_whole), Field(ge=1)]
_NOT_NEGATIVE = Annotated[int, BeforeValidator(_whole), Field(ge=0)]
_SECONDS = Annotated[float, BeforeValidator(_real), Field(ge=0, allow_inf_nan=False)]
_TRUTH = Annotated[bool, BeforeValidator(_truth)]
_NAME = Annotated[str, Field(strict=True, min_length=1)]
_NAMES = Annotated[tuple[Annotated[str, Field(strict=True)], ...], BeforeValidator(_listed)]
_LOCATION = Annotated[Any, BeforeValidator(_location)]
_DATABASE = Annotated[Any, BeforeValidator(_database)]
_FILE = Annotated[Any, BeforeValidator(_file)]
_FILES = Annotated[tuple[_FILE, ...], BeforeValidator(_listed)]
_MAPPING = Annotated[Any, BeforeValidator(_mapping)]

Kind = tuple[Any, str]
"""The type of an argument, and what to give, for the line of an error."""

A_COUNT: Kind = (COUNT, "a whole number of at least 1")
A_SEED: Kind = (SEED, f"a whole number from 0 to {LARGEST_SEED}")
A_MAPPING: Kind = (_MAPPING, "a dictionary of settings by name, such as {'hidden_size': 64}")
_LIMIT: Kind = (_NOT_NEGATIVE, "a whole number of at least 0")
_A_TRUTH: Kind = (_TRUTH, "True or False")
_SOME_TEXTS: Kind = (_NAMES, "a text, or a list of texts")
_PLACE: Kind = (_LOCATION, "a folder or a URL")

ARGUMENTS: dict[str, Kind] = {
    "task": (_NAME, "the name of a task, such as 'adding'"),
    "model": (_NAME, "the name of a model, such as 'scornn'"),
    "models": (_NAMES, "the name of a model, or a list of names"),
    "seed": A_SEED,
    "first_seed": A_SEED,
    "seeds": (
        Annotated[Any, BeforeValidator(_seeds)],
        f"a number of seeds of at least 1, or a list of whole numbers from 0 to {LARGEST_SEED}",
    ),
    "db": (_DATABASE, "a file or an SQLAlchemy URL"),
    "databases": (Annotated[tuple[_DATABASE, ...], BeforeValidator(_listed)], "a database, or a list of them"),
    "settings": A_MAPPING,
    "grid": (_MAPPING, "a dictionary of lists by setting, such as {'learning_rate': [1e-3, 1e-4]}"),
    "options": (Annotated[Any, BeforeValidator(_options)], "ExecutionOptions(...)"),
    "where": _SOME_TEXTS,
    "only": _SOME_TEXTS,
    "trials": A_COUNT,
    "jobs": _LIMIT,
    "plugins": (_FILES, "a Python file, or a list of them"),
    "data_folder": (_FILE, "a folder"),
    **dict.fromkeys(
        ("force", "extend", "dry_run", "prune", "db_only", "for_update", "fail_on_speed", "retest"), _A_TRUTH
    ),
}
"""The arguments of all functions."""
OPTIONS: dict[str, Kind] = {
    **{name: ARGUMENTS[name] for name in ("jobs", "plugins", "data_folder")},
    "executor": (_NAME, "local, ray, ray://HOST:PORT, or slurm"),
    "gpu_share": A_COUNT,
    "threads": A_COUNT,
    "slurm": _SOME_TEXTS,
    "group_minutes": (Annotated[float, BeforeValidator(_real)], "a positive number"),
    "checkpoint_every": (_SECONDS, "a number of seconds of at least 0"),
    "tags": (
        Annotated[Any, BeforeValidator(_tags)],
        "words of up to 64 characters, without commas, and other than none, which selects runs without a tag",
    ),
    "checkpoints": _PLACE,
    "weights": _PLACE,
    "budget": (_SECONDS, "a number of seconds of at least 0"),
    "profile": _A_TRUTH,
    "log_to": _SOME_TEXTS,
}
"""The fields of `ExecutionOptions`."""


def checked(**special: Kind | None) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Validate the arguments of a function of the API by their names, before its first line.

    An argument whose default is None may be None.

    Args:
        special: the kinds of arguments that differ from `ARGUMENTS` in this function; None for one without a check.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            bound = signature.bind(*args, **kwargs)
            for name, value in bound.arguments.items():
                if value is not None or signature.parameters[name].default is not None:
                    bound.arguments[name] = read(name, value, {**ARGUMENTS, **special})
            return function(*bound.args, **bound.kwargs)

        return cast(Callable[P, T], call)

    return wrap


def read(name: str, value: Any, kinds: Mapping[str, Kind | None]) -> Any:
    """Return the validated value of an argument; one that has no kind is returned as it is.

    Raises:
        UsageError: the value is invalid; one line with the fix.
    """
    if kind := kinds.get(name):
        type_, remedy = kind
        try:
            return _adapter(type_).validate_python(value)
        except (ValidationError, OverflowError) as error:
            raise UsageError(f"{name}={value!r:.80}: give {remedy}") from error
    if name in CHOICES:
        module, _, choices = CHOICES[name].rpartition(".")
        known = get_args(getattr(import_module(f"orthobench.{module}"), choices))
        if name == "device" and isinstance(value, str) and value.startswith("cuda:"):
            raise UsageError(
                f"device={value!r}: give device='cuda', and choose the GPU by the variable "
                f"CUDA_VISIBLE_DEVICES={value.removeprefix('cuda:')}"
            )
        if not isinstance(value, str) or value not in known:
            raise unknown(name, str(value), known)
    return value


@cache
def _adapter(type_: Any) -> TypeAdapter[Any]:
    return TypeAdapter(type_)
