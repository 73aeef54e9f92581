"""JSON as RFC 8259 has it: no NaN, no infinity, no bottomless nesting."""

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
        ValueError: the text is not JSON, has a number that is not finite, or is nested so deeply that a program may
            fail while it walks through the value.
    """
    try:
        value = _decode(text if isinstance(text, str) else text.decode(json.detect_encoding(text), "surrogatepass"))
        opened = "[{" if isinstance(text, str) else b"[{"
        if sum(map(text.count, opened)) > DEEPEST and _depth(value) > DEEPEST:  # type: ignore[arg-type]
            raise ValueError(f"JSON of more than {DEEPEST} levels")
    except RecursionError as error:
        raise ValueError(f"JSON of more than {DEEPEST} levels") from error
    return value


def _not_json(word: str) -> None:
    raise ValueError(f"{word} is not a number of JSON")


def _finite_float(digits: str) -> float:
    if math.isfinite(value := float(digits)):
        return value
    raise ValueError(f"{digits:.40} is too large for a number")


_decode = json.JSONDecoder(parse_constant=_not_json, parse_float=_finite_float).decode
"""Decodes a text with a decoder that is built once, and not for each of thousands of texts."""


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
