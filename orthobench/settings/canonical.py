"""Settings as canonical text: what identifies a run, and whether two values are the same."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path, PureWindowsPath
from typing import Any

from pydantic import TypeAdapter, ValidationError

from orthobench.options.arguments import is_none
from orthobench.options.assignments import text
from orthobench.system.location import from_home

CHECKSUM = "_md5"
"""The suffix of a checksum: next to a setting `NAME` that names a file or folder there is `NAME_md5`."""

Scalar = str | bool | int | float
"""A setting's value, or one value of a list, as a file or a destination has it."""

# Sorted, because the order in which a class declares its settings must not change the keys of its runs.
_canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False).encode


def digest(value: Any) -> str:
    """Return the hash of a JSON value, 16 hexadecimal digits."""
    return _hash(_canonical(value))


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def merged_settings(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the task, the model and training of a run's spec, by name."""
    return {**spec["task_settings"], **spec["model_settings"], **spec["training"]}


def whole_path(path: str) -> str:
    """Return the absolute path of a file or folder that the user names, with links and ~ resolved."""
    return os.path.realpath(from_home(path))


def identity(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings that identify a run, with the checksum of a file or folder instead of its path."""
    return {name: value for name, value in settings.items() if settings.get(name + CHECKSUM) is None}


def without_paths(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return a spec with the names of files in place of their paths, which are not part of the key."""
    return {
        group: {
            name: PureWindowsPath(str(value)).name if values.get(name + CHECKSUM) is not None else value
            for name, value in values.items()
        }
        if isinstance(values, Mapping)
        else values
        for group, values in spec.items()
    }


def run_names(spec: Mapping[str, Any]) -> dict[str, str]:
    """Return the hashes that identify a run's `key`, its `variant` (without the seed) and its `condition`.

    A condition is the task with its settings and version; runs with comparable metrics share it.
    """
    # Each value is written once and joined three times, because a list of runs checks the names of every run.
    texts = {name: _canonical(identity(value) if isinstance(value, Mapping) else value) for name, value in spec.items()}
    variant = {name: value for name, value in texts.items() if name != "seed"}
    task = {"task": texts["task"], "settings": texts["task_settings"], "version": texts["task_version"]}
    return {name: _hash(_joined(part)) for name, part in (("key", texts), ("variant", variant), ("condition", task))}


def spec_columns(spec: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a run's record that follow from its spec, without the spec itself."""
    return run_names(spec) | {name: spec[name] for name in ("task", "model", "seed")}


def _joined(values: Mapping[str, str]) -> str:
    """Return the canonical JSON of a record whose values are JSON already."""
    return f"{{{','.join(f'{_canonical(name)}:{values[name]}' for name in sorted(values))}}}"


def same(recorded: Any, value: Any) -> bool:
    """Return whether a value that `run` accepts equals the recorded one: 1e-3 is 0.001, 4.0 is 4, "yes" is True.

    Text must agree letter by letter; paths are compared as absolute paths.
    """
    if recorded is None:
        return is_none(value)
    if isinstance(recorded, str):
        return recorded == text(value) or (Path(recorded).is_absolute() and recorded == whole_path(text(value)))
    for kind, reader in _READERS.items():
        if isinstance(recorded, kind):
            try:
                return bool(reader.validate_python(value) == recorded)
            except ValidationError:
                return False
    return text(recorded) == text(value)


_READERS: dict[type, TypeAdapter[Any]] = {kind: TypeAdapter(kind) for kind in (bool, int, float)}
"""The function that reads values of a setting, by type; bool comes first because a bool is also an int."""
