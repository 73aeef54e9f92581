"""Read the specs of runs. Those of a variant differ in their seeds alone, so the rest is parsed and hashed once."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

from orthobench.settings import names_by_seed
from orthobench.system.strict_json import load_json

SEED = ', "seed": '
"""What stands before the seed, which is the last entry of a stored spec."""
VARIANTS = 4096
"""The most variants that are remembered, each in a few kilobytes."""


class Spec(dict[str, Any]):
    """A run's spec as it was read, with the hashes that follow from it (`run_names`)."""

    __slots__ = ("names",)
    names: dict[str, str]


def read_json(stored: str | bytes) -> Any:
    """Return the value of a stored JSON text, as a `Spec` if it is one whose variant consists of plain values.

    Args:
        stored: a text, or its bytes in UTF-8, which PostgreSQL's driver passes on.

    Raises:
        ValueError: the text is not JSON (`load_json`).
    """
    if not isinstance(stored, str | bytes):
        raise ValueError(f"{stored!r:.40} is not a JSON object")
    text = stored if isinstance(stored, str) else stored.decode()
    start, mark, end = text.rpartition(SEED)
    seed = end[:-1]
    if mark and end[-1:] == "}" and seed.isdecimal() and str(int(seed)) == seed:
        known = _variant(start)
        if known is not None:
            variant, names = known
            spec = Spec({name: dict(value) if isinstance(value, dict) else value for name, value in variant.items()})
            spec["seed"] = int(seed)
            spec.names = names(int(seed))
            return spec
    return load_json(text)


@lru_cache(VARIANTS)
def _variant(start: str) -> tuple[dict[str, Any], Callable[[int], dict[str, str]]] | None:
    """Return a spec without its seed, and the function that returns the hashes of a run by its seed.

    None if it is not a spec, or has lists in its settings, which its runs would share.

    Args:
        start: the JSON text before the seed.
    """
    try:
        variant = load_json(f"{start}}}")
        groups = (value.values() if isinstance(value, dict) else [value] for value in variant.values())
        is_plain = not any(isinstance(value, (dict, list)) for values in groups for value in values)
        return (variant, names_by_seed(variant)) if is_plain else None
    except (ValueError, LookupError, TypeError, AttributeError):
        return None
