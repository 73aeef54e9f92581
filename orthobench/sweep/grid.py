"""Grids: `key=v1,v2` texts, and every combination of their values."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

from orthobench.errors import UsageError
from orthobench.settings import parse_assignments


def parse_grid(texts: Sequence[str]) -> dict[str, list[str]]:
    """Read `key=v1,v2,...` texts.

    Raises:
        UsageError: a text names no key or no value, or names a key or value twice.
    """
    grid = {}
    for key, text in parse_assignments(texts).items():
        values = [value.strip() for value in text.split(",")]
        if not all(values):
            raise UsageError(f"grid '{key}={text}' has an empty value: write {key}=v1,v2")
        if len(set(values)) < len(values):
            raise UsageError(f"grid '{key}={text}' names a value twice")
        grid[key] = values
    return grid


def combinations(grid: dict[str, list[str]]) -> list[dict[str, str]]:
    """Every combination, the last key's values varying fastest; an empty grid has one, the empty one."""
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]
