"""Balanced strings of brackets: how many there are, a uniform draw of one, and the bracket that may close at each step.

Only the shape is counted, which says at each step whether a bracket opens or closes. Each of the shapes has the same
number of strings, because each of its n pairs can be of any kind.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ._draws import Draws

SHAPES, KINDS = range(2)
"""Channels of the draws."""


def completions(steps: int, depth: int) -> list[list[int]]:
    """Return how many ways lead in r steps from h open brackets to none, for r up to `steps`, never above a depth.

    Returns:
        A list of rows r, each with an entry for h = 0 to the depth.
    """
    ways = [[1] + [0] * depth]
    for _ in range(steps):
        last = ways[-1]
        up, down = [*last[1:], 0], [0, *last[:-1]]
        ways.append([more + less for more, less in zip(up, down, strict=True)])
    return ways


def mean_returns(pairs: int, depth: int) -> float:
    """Return how often a random string of n pairs closes its last open bracket, on average."""
    ways = [row[0] for row in completions(2 * pairs, depth)]
    return sum(ways[2 * k] * ways[2 * (pairs - k)] for k in range(1, pairs + 1)) / ways[2 * pairs]


class Brackets:
    """Uniform strings of brackets of several kinds, of at most `longest` symbols and a depth.

    The bracket that opens kind i is the symbol i, and the one that closes it the symbol `kinds` + i.
    """

    def __init__(self, kinds: int, longest: int, depth: int, device: torch.device) -> None:
        self.kinds, self.depth = kinds, depth
        ways = completions(longest, depth)
        # The share of the ways on which the next bracket opens, as a bound of 32 random bits.
        bounds = np.zeros((longest + 1, depth + 1), dtype=np.int64)
        for left in range(1, longest + 1):
            for height in range(depth):
                if ways[left][height]:
                    bounds[left, height] = (ways[left - 1][height + 1] << 32) // ways[left][height]
        self.bounds = torch.from_numpy(bounds).to(device)

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return strings of the given even lengths `[B]` as `[steps, B]`, and what may close after each symbol.

        The second tensor is 0 if no bracket is open, and 1 + i if the last open one is of kind i.
        """
        bits = draws.bits(examples, torch.arange(steps, device=examples.device).unsqueeze(1), SHAPES)
        kinds = draws.rows(self.kinds, examples, steps, KINDS).T
        height = torch.zeros_like(examples)
        # Row 0 says that nothing is open; the row after the last takes what padding would open.
        stack = torch.zeros(self.depth + 2, len(examples), dtype=torch.long, device=examples.device)
        symbols, open_kinds = [], []
        for step in range(steps):
            left = (lengths - step).clamp(min=0)
            opens = bits[step] < self.bounds[left, height]
            closed = stack.gather(0, height.unsqueeze(0)).squeeze(0) - 1
            symbols.append(torch.where(opens, kinds[step], self.kinds + closed))
            height = torch.where(left > 0, height + torch.where(opens, 1, -1), height)
            row = torch.where(opens, height, self.depth + 1)
            stack.scatter_(0, row.unsqueeze(0), (1 + kinds[step]).unsqueeze(0))
            open_kinds.append(stack.gather(0, height.unsqueeze(0)).squeeze(0))
        return torch.stack(symbols), torch.stack(open_kinds)


def baseline(kinds: int, depth: int, lengths: Sequence[int]) -> tuple[float, float, float]:
    """Return the scores of the best predictor that knows the current symbol alone, over equally likely lengths.

    After an opening bracket it knows the answer. After a closing one it says that nothing is open, or names a kind, all
    of which are equally likely. Only the former is ever right in a whole string: if every bracket is closed at once,
    which is one of the shapes.

    Returns:
        The share of correct strings, the share of correct answers, and the cross-entropy of an answer in nats.
    """
    pairs = [length // 2 for length in lengths]
    shapes = completions(2 * max(pairs), depth)
    whole = sum(1 / shapes[2 * count][0] for count in pairs) / len(pairs)
    closed = sum(mean_returns(count, depth) for count in pairs) / sum(pairs)
    chances = np.array([closed, *[(1 - closed) / kinds] * kinds])
    nats = -float(np.sum(chances[chances > 0] * np.log(chances[chances > 0])))
    return whole, 0.5 + 0.5 * float(chances.max()), 0.5 * nats
