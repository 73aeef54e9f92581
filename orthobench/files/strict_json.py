"""Values for strict JSON, which has no NaN and no infinities."""

from __future__ import annotations

import json
import math
from typing import Any

DEEPEST = 50
"""The most nested levels of lists and dictionaries in JSON that this program reads; its own has fewer than ten."""


def dump_json(value: Any, **options: Any) -> str:
    """Return a value as JSON, with null for floats that are not finite; `options` are those of `json.dumps`."""
    try:
        return json.dumps(value, allow_nan=False, **options)
    except ValueError:  # not all floats are finite
        return json.dumps(finite(value), allow_nan=False, **options)


def load_json(text: str | bytes) -> Any:
    """Return the value of a JSON text.

    Raises:
        ValueError: the text is not JSON, or nested so deeply that a program may fail while it walks through the value.
    """
    try:
        value = json.loads(text)
        opened = "[{" if isinstance(text, str) else b"[{"
        if sum(map(text.count, opened)) > DEEPEST and _depth(value) > DEEPEST:  # type: ignore[arg-type]
            raise ValueError(f"JSON of more than {DEEPEST} levels")
    except RecursionError as error:
        raise ValueError(f"JSON of more than {DEEPEST} levels") from error
    return value


def _depth(value: Any) -> int:
    """Return the number of nested levels of lists and dictionaries in a JSON value."""
    depth, level = 0, [value]
    while level := [each for each in level if isinstance(each, (dict, list))]:
        depth += 1
        level = [entry for each in level for entry in (each.values() if isinstance(each, dict) else each)]
    return depth


def finite(value: Any) -> Any:
    """Replace every float that is not finite by null, also inside dictionaries and lists."""
    if isinstance(value, dict):
        return {key: finite(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return [finite(entry) for entry in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
