"""Random bracketed expressions modulo 5 of a given length, their values, and the distribution of the values.

An expression of 1 to 4 symbols is d, -d, (d) or (-d) with a digit d. A longer one of L symbols is (left op right). The
left part has 1 to L - 4 symbols, all equally likely, and the right part the remaining L - 3 - left. Source:
`tasks/dcf/modular_arithmetic_brackets.py` in google-deepmind/neural_networks_chomsky_hierarchy.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from ._draws import Draws

MODULUS = 5
PLUS, MINUS, TIMES, OPEN, CLOSE, END = range(MODULUS, MODULUS + 6)
"""Symbols after the digits 0 to 4."""
SPLIT_CHANNEL, OPERATOR_CHANNEL, DIGIT_CHANNEL = 1, 2, 3


@dataclass(frozen=True)
class Parts:
    """The expressions of one depth: their rows in the batch, first steps, lengths and, with an operator, its parts."""

    rows: Tensor
    starts: Tensor
    operators: Tensor
    right_starts: Tensor


def expressions(
    draws: Draws, examples: Tensor, lengths: Tensor, steps: int, operators: tuple[int, ...]
) -> tuple[Tensor, Tensor]:
    """Return random expressions `[B, steps]`, END after each, and their values modulo 5 `[B]`. CPU only.

    The work goes depth by depth: all parts of one depth are generated together, for all examples.

    Args:
        operators: equally likely symbols; an operator may occur twice.
    """
    symbols = torch.full((len(examples), steps), END)
    values = torch.zeros(len(examples), steps, dtype=torch.long)  # at the first step of each part
    choices = torch.tensor(operators)
    depths: list[Parts] = []
    rows, starts = torch.arange(len(examples)), torch.zeros_like(examples)
    while len(rows):
        short = lengths < 5
        _write_terminals(draws, examples, symbols, values, rows[short], starts[short], lengths[short])
        rows, starts, lengths = rows[~short], starts[~short], lengths[~short]
        left = 1 + draws.below(lengths - 4, examples[rows], starts, SPLIT_CHANNEL)
        chosen = choices[draws.below(len(operators), examples[rows], starts, OPERATOR_CHANNEL)]
        right_starts = starts + 2 + left
        symbols[rows, starts], symbols[rows, starts + lengths - 1] = OPEN, CLOSE
        symbols[rows, right_starts - 1] = chosen
        depths.append(Parts(rows, starts, chosen, right_starts))
        right = lengths - 3 - left
        rows, starts = torch.cat((rows, rows)), torch.cat((starts + 1, right_starts))
        lengths = torch.cat((left, right))
    for part in reversed(depths):
        a, b = values[part.rows, part.starts + 1], values[part.rows, part.right_starts]
        product = torch.where(part.operators == TIMES, a * b, a - b)
        values[part.rows, part.starts] = torch.where(part.operators == PLUS, a + b, product) % MODULUS
    return symbols, values[:, 0]


def _write_terminals(
    draws: Draws, examples: Tensor, symbols: Tensor, values: Tensor, rows: Tensor, starts: Tensor, lengths: Tensor
) -> None:
    """Write d, -d, (d) and (-d), and their values."""
    digits = draws.below(MODULUS, examples[rows], starts, DIGIT_CHANNEL)
    bracketed, negative = lengths >= 3, lengths % 2 == 0
    symbols[rows[bracketed], starts[bracketed]] = OPEN
    symbols[rows[bracketed], (starts + lengths - 1)[bracketed]] = CLOSE
    symbols[rows[negative], (starts + bracketed)[negative]] = MINUS
    symbols[rows, starts + bracketed.long() + negative.long()] = digits
    values[rows, starts] = torch.where(negative, -digits, digits) % MODULUS


def value_distributions(longest: int, operators: tuple[int, ...]) -> np.ndarray:
    """Return the probabilities of the values 0 to 4 by length, `[longest + 1, 5]`; row 0 is unused."""
    chances = np.full((longest + 1, MODULUS), 1 / MODULUS)
    a, b = np.indices((MODULUS, MODULUS))
    results = {PLUS: (a + b) % MODULUS, MINUS: (a - b) % MODULUS, TIMES: a * b % MODULUS}
    for length in range(5, longest + 1):
        left = chances[1 : length - 3]
        pairs = np.einsum("sa,sb->ab", left, left[::-1]) / len(left)  # the right part has length - 3 - left symbols
        chances[length] = sum(
            np.bincount(results[operator].ravel(), pairs.ravel(), MODULUS) for operator in operators
        ) / len(operators)
    return chances
