"""Pair what two sides have, by seed or by the key of a run: the rule of `check` and `compare`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Generic, TypeVar

from orthobench.analysis.inference import deciding_seeds
from orthobench.errors import UsageError, counted

Key = TypeVar("Key", int, str)
Entry = TypeVar("Entry")


@dataclass(frozen=True)
class Sides(Generic[Key, Entry]):
    """The values or runs of two sides by key; a seed with several runs, of different settings, has several entries.

    Attributes:
        names: what messages call the two sides.
    """

    first: Mapping[Key, Sequence[Entry]]
    second: Mapping[Key, Sequence[Entry]]
    names: tuple[str, str] = ("the first", "the second")

    @property
    def common(self) -> list[Key]:
        """The keys that both sides have, sorted."""
        return sorted(self.first.keys() & self.second.keys())

    @property
    def only_first(self) -> list[Key]:
        """The keys that the second side does not have, sorted."""
        return sorted(self.first.keys() - self.second.keys())

    @property
    def only_second(self) -> list[Key]:
        """The keys that the first side does not have, sorted."""
        return sorted(self.second.keys() - self.first.keys())

    @property
    def samples(self) -> tuple[list[Entry], list[Entry]]:
        """All entries of each side, as independent samples."""
        return list(chain(*self.first.values())), list(chain(*self.second.values()))

    def pairs(self, wanted: bool | None, comparisons: int = 1) -> tuple[list[Entry], list[Entry]] | None:
        """Return the entries of the common keys in the same order; None if the sides are independent samples.

        By default sides with six common keys or more are paired, and more if there are several comparisons, because
        fewer pairs cannot be tested apart. Of more comparisons than draws allow, none is paired.

        Args:
            wanted: whether to pair them; None for the default.
            comparisons: the number of comparisons that are tested together.

        Raises:
            UsageError: pairs are wanted, but a key has several entries, or fewer than two keys are common.
        """
        if wanted is False:
            return None
        for name, own in zip(self.names, (self.first, self.second), strict=True):
            repeated = next((key for key, entries in own.items() if len(entries) > 1), None)
            if repeated is not None:
                if wanted:
                    raise UsageError(
                        f"'{name}' has several runs of seed {repeated}, which cannot be paired: narrow it by "
                        "key=value, or leave `paired` out"
                    )
                return None
        keys = self.common
        if wanted and len(keys) < 2:
            raise UsageError(f"the sides have {counted(len(keys), 'common seed')}: pairs need two; leave `paired` out")
        enough = deciding_seeds(comparisons, paired=True)
        if not wanted and (enough is None or len(keys) < enough):
            return None
        return [self.first[key][0] for key in keys], [self.second[key][0] for key in keys]


def single(first: Mapping[Key, Entry], second: Mapping[Key, Entry]) -> Sides[Key, Entry]:
    """Return two sides with one entry for each key."""
    return Sides({key: [entry] for key, entry in first.items()}, {key: [entry] for key, entry in second.items()})


def by_key(entries: Iterable[Entry], key: Callable[[Entry], Key]) -> dict[Key, list[Entry]]:
    """Return the entries by their key, in their order."""
    grouped: dict[Key, list[Entry]] = {}
    for entry in entries:
        grouped.setdefault(key(entry), []).append(entry)
    return grouped


def changed(sides: Sides[Key, float], tolerance: float = 0.0) -> list[Key]:
    """Return the common keys whose values differ by more than this share of the first value.

    Two values of the same infinity, as of runs that diverged, are equal.
    """
    pairs = ((key, sides.first[key][0], sides.second[key][0]) for key in sides.common)
    return [key for key, then, now in pairs if now != then and not abs(now - then) <= tolerance * abs(then)]
