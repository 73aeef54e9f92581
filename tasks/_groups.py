"""The finite groups S3, S5, A5, Z60 and A4 x Z5 as multiplication tables.

A permutation of n points is the tuple of the images of 0 to n - 1. The product a b means: first a, then b. Permutations
are numbered in lexicographic order, and so are the pairs (a, k) of A4 x Z5. Element k of Z60 is k. Element 0 is
therefore always the identity.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from itertools import permutations, product
from typing import Literal

import numpy as np

GroupName = Literal["S3", "S5", "A5", "Z60", "A4xZ5"]
Permutation = tuple[int, ...]


@dataclass(frozen=True)
class Group:
    """A finite group.

    Attributes:
        table: `table[a, b]` is the number of the product a b, `[order, order]`.
        generators: the numbers of a smallest set of elements that generates the group.
    """

    table: np.ndarray
    generators: tuple[int, ...]

    @property
    def order(self) -> int:
        return len(self.table)

    def tokens(self, count: int | None) -> list[int]:
        """Return the elements that occur in words: all of them, or the first `count`, beginning with the generators.

        After the generators come the other elements by number, and the identity last (D-54).
        """
        if count is None:
            return list(range(self.order))
        others = [element for element in range(1, self.order) if element not in self.generators]
        return [*self.generators, *others, 0][:count]


def _is_even(permutation: Permutation) -> bool:
    inversions = sum(a > b for i, a in enumerate(permutation) for b in permutation[i + 1 :])
    return inversions % 2 == 0


def _permutation_group(elements: Sequence[Permutation], generators: Sequence[Permutation]) -> Group:
    number = {element: k for k, element in enumerate(elements)}
    table = [[number[tuple(b[image] for image in a)] for b in elements] for a in elements]
    return Group(np.array(table), tuple(number[generator] for generator in generators))


def _symmetric(points: int) -> list[Permutation]:
    return list(permutations(range(points)))


def _alternating(points: int) -> list[Permutation]:
    return list(filter(_is_even, permutations(range(points))))


def _cyclic(order: int) -> Group:
    numbers = np.arange(order)
    return Group((numbers[:, None] + numbers) % order, (1,))


def _direct_product(first: Group, second: Group, generators: Sequence[tuple[int, int]]) -> Group:
    pairs = list(product(range(first.order), range(second.order)))
    table = [[first.table[a, c] * second.order + second.table[b, d] for c, d in pairs] for a, b in pairs]
    return Group(np.array(table), tuple(a * second.order + b for a, b in generators))


@cache
def group(name: GroupName) -> Group:
    """Return a group by its name."""
    match name:
        case "S3":
            return _permutation_group(_symmetric(3), [(1, 0, 2), (1, 2, 0)])
        case "S5":
            return _permutation_group(_symmetric(5), [(1, 0, 2, 3, 4), (1, 2, 3, 4, 0)])
        case "A5":
            return _permutation_group(_alternating(5), [(1, 2, 3, 4, 0), (1, 2, 0, 3, 4)])
        case "Z60":
            return _cyclic(60)
        case "A4xZ5":
            rotation, swaps = (1, 2, 0, 3), (1, 0, 3, 2)
            alternating = _permutation_group(_alternating(4), [rotation, swaps])
            a, b = alternating.generators
            return _direct_product(alternating, _cyclic(5), [(a, 1), (b, 0)])
