"""Convert a nested record with tensors, such as an optimiser's state, to JSON and named tensors, and back."""

from __future__ import annotations

from typing import Any

from torch import Tensor

PLAIN = (bool, int, float, str, type(None))


def flatten(value: Any) -> tuple[Any, dict[str, Tensor]]:
    """Return a record of dictionaries, lists, tuples, tensors and plain values as JSON, and its tensors by name."""
    tensors: dict[str, Tensor] = {}

    def walk(inner: Any, path: str) -> Any:
        if isinstance(inner, Tensor):
            tensors[path] = inner
            return {"tensor": path}
        if isinstance(inner, dict):
            return {"dict": [[name, walk(entry, f"{path}/{name}")] for name, entry in inner.items()]}
        if isinstance(inner, (list, tuple)):
            kind = "list" if isinstance(inner, list) else "tuple"
            return {kind: [walk(entry, f"{path}/{position}") for position, entry in enumerate(inner)]}
        if not isinstance(inner, PLAIN):
            raise TypeError(f"{type(inner).__name__} at {path} is not a plain value")
        return inner

    return walk(value, "state"), tensors


def restore(structure: Any, tensors: dict[str, Tensor]) -> Any:
    """Return the record that `flatten` turned into a structure and tensors.

    Raises:
        KeyError, TypeError, ValueError: the structure and the tensors do not match.
    """
    if not isinstance(structure, dict):
        return structure
    ((kind, content),) = structure.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "dict":
        return {name: restore(entry, tensors) for name, entry in content}
    entries = [restore(entry, tensors) for entry in content]
    return tuple(entries) if kind == "tuple" else entries
