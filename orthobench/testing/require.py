"""How the checks say what is wrong."""

from __future__ import annotations

from collections.abc import Iterable


def require(holds: bool, otherwise: str) -> None:
    """Raise AssertionError with this line unless something holds; unlike `assert`, also under `python -O`."""
    if not holds:
        raise AssertionError(otherwise)


def require_apart(names: Iterable[str], taken: Iterable[str], whose: str) -> None:
    """Settings of all kinds are given in one list, so their names must not meet."""
    both = set(names) & set(taken)
    require(not both, f"the settings {', '.join(sorted(both))} are also {whose}'s: rename them")
