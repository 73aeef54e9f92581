"""Raise the checks' messages."""

from __future__ import annotations

from collections.abc import Iterable


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with the message `otherwise` unless `holds`; unlike `assert`, also under `python -O`."""
    if not holds:
        raise AssertionError(otherwise)


def require_apart(names: Iterable[str], taken: Iterable[str], whose: str) -> None:
    """Require that names of settings differ from `taken`, since a user sets all kinds of settings in one list."""
    both = set(names) & set(taken)
    require(not both, f"the settings {', '.join(sorted(both))} are also {whose}'s: rename them")
