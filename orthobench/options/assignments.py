"""KEY=VALUE, as the user writes settings (`-s`) and axes of a grid (`--grid`), and values in this notation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from orthobench.errors import UsageError


def text(value: Any) -> str:
    """Return a setting's JSON value as written on the command line."""
    if isinstance(value, list):
        return ",".join(map(text, value)) or "none"
    if isinstance(value, bool):
        return str(value).lower()
    return "none" if value is None else str(value)


def parse_assignments(texts: Iterable[str]) -> dict[str, str]:
    """Read settings or axes of a grid, one text each, such as "hidden_size=170".

    Raises:
        UsageError: a text has no key, no value or no equals sign, or a key occurs twice.
    """
    values: dict[str, str] = {}
    for assignment in texts:
        key, equals, value = (part.strip() for part in assignment.partition("="))
        if not (key and equals and value):
            raise malformed(assignment, "setting", "hidden_size=170")
        if key in values:
            raise given_twice(key, values[key], value)
        values[key] = value
    return values


def malformed(written: str, noun: str, example: str) -> UsageError:
    """Return the error for a text that is not KEY=VALUE."""
    return UsageError(f"'{written}' is not a {noun}: write KEY=VALUE, for example {example}")


def given_twice(key: str, first: Any, second: Any, fix: str = "give it once") -> UsageError:
    """Return the error for a key that has two values."""
    return UsageError(f"{key} is given twice ({first} and {second}): {fix}")
