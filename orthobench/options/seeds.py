"""The seeds of a sweep as the user writes them."""

from __future__ import annotations

from orthobench.errors import UsageError
from orthobench.options.arguments import LARGEST_SEED

TRIALS = 50
"""The usual number of trials of a search."""
MAX_SEEDS = 10_000
"""The largest number of seeds; a larger one is treated as a typing error."""


def parse_seeds(text: str, first: int | None = None) -> list[int]:
    """Return seeds: "5" stands for 0 to 4, "3-5" for 3, 4 and 5, and "0,3-5" for these four.

    Args:
        first: the first of a number of seeds, in place of 0.

    Raises:
        UsageError: the text is neither a number of seeds nor a list, a seed is too large, or a list has a first seed.
    """
    if text.strip().isdecimal() and 1 <= int(text) <= MAX_SEEDS:
        start = first or 0
        if start + int(text) - 1 > LARGEST_SEED:
            raise UsageError(f"`first_seed={first}` with {text} seeds exceeds {LARGEST_SEED}, the largest: give less")
        return list(range(start, start + int(text)))
    found: list[int] = []
    for part in text.split(","):
        low, dash, high = (each.strip() for each in part.partition("-"))
        high = high if dash else low
        is_range = low.isdecimal() and high.isdecimal()
        if not is_range or (not dash and "," not in text):
            raise UsageError(f"`seeds={text[:40]!r}`: give a number of seeds from 1 to {MAX_SEEDS}, or 3-5, or 0,3-5")
        if not int(low) <= int(high) <= LARGEST_SEED or int(high) - int(low) >= MAX_SEEDS:
            raise UsageError(f"`seeds={text[:40]!r}`: {part} is no range of at most {MAX_SEEDS} seeds: write 3-5")
        found += range(int(low), int(high) + 1)
    if first is not None:
        raise UsageError(f"`seeds={text!r}` names its first seed already: leave `first_seed` out")
    return list(dict.fromkeys(found))


def more_seeds(seeds: list[int], needed: int) -> str:
    """Return what to give for more seeds than these, which were trained already.

    Args:
        needed: the number of seeds from which on a comparison can decide.
    """
    count, following = len(seeds), max(seeds) + 1
    more = needed if count < needed else 2 * count
    if min(seeds) == 0 and following == count:
        return str(more)
    return f"{following}-{following + more - count - 1}"
