"""The formal languages: random strings, their answers, and the exact distribution of the answers.

Strings consist of abstract symbols, which a protocol maps to token numbers (`_language_forms.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
import torch
from torch import Tensor

from ._draws import Draws
from ._expressions import MINUS, MODULUS, PLUS, TIMES, expressions, value_distributions

POSITIONS = 5
"""Number of positions on the cycle."""


class Language(ABC):
    """Strings over the symbols 0 to `alphabet` - 1, each with an answer from 0 to `answers` - 1."""

    alphabet: int
    answers: int

    @abstractmethod
    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return random strings `[B, steps]` of the given lengths `[B]`, and their answers `[B]`.

        Symbols beyond a string's length have no meaning.
        """

    @abstractmethod
    def distributions(self, longest: int) -> np.ndarray:
        """Return the probabilities of the answers by length, `[longest + 1, answers]`; row 0 is unused."""


def _uniform(longest: int, answers: int) -> np.ndarray:
    return np.full((longest + 1, answers), 1 / answers)


def _inside(lengths: Tensor, steps: int) -> Tensor:
    return torch.arange(steps, device=lengths.device) < lengths.unsqueeze(1)


class Parity(Language):
    """Whether the symbol 1 occurs an odd number of times: answer 1, else 0."""

    alphabet = answers = 2

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        symbols = draws.rows(2, examples, steps)
        return symbols, (symbols * _inside(lengths, steps)).sum(1) % 2

    def distributions(self, longest: int) -> np.ndarray:
        return _uniform(longest, 2)


class EvenPairs(Language):
    """Whether the number of unequal neighbours is odd, which means that the first and the last symbol differ."""

    alphabet = answers = 2

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        symbols = draws.rows(2, examples, steps)
        last = symbols.gather(1, (lengths - 1).unsqueeze(1)).squeeze(1)
        return symbols, (symbols[:, 0] != last).long()

    def distributions(self, longest: int) -> np.ndarray:
        chances = _uniform(longest, 2)
        chances[1] = 1, 0
        return chances


class CycleNavigation(Language):
    """The last position on a cycle of five, starting at 0; the symbols 0, 1 and 2 stay, add 1 and subtract 1."""

    alphabet, answers = 3, POSITIONS
    moves = (0, 1, -1)

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        symbols = draws.rows(3, examples, steps)
        moves = symbols - 3 * (symbols == 2).long()  # 2 is -1
        return symbols, (moves * _inside(lengths, steps)).sum(1) % POSITIONS

    def distributions(self, longest: int) -> np.ndarray:
        chances = [np.eye(POSITIONS)[0]]
        for _ in range(longest):
            chances.append(sum(np.roll(chances[-1], move) for move in self.moves) / len(self.moves))
        return np.stack(chances)


class ModularArithmetic(Language):
    """The value modulo 5 of d op d op ... d with +, - and *, where * binds more tightly. Strings have odd lengths."""

    alphabet, answers = TIMES + 1, MODULUS

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        is_operator = torch.arange(steps, device=examples.device) % 2
        symbols = draws.rows(MODULUS, examples, steps)
        operators = PLUS + draws.rows(3, examples, steps, channel=1)
        symbols = torch.where(is_operator.bool(), operators, symbols)
        return symbols, self._values(symbols, (lengths + 1) // 2)

    @staticmethod
    def _values(symbols: Tensor, numbers: Tensor) -> Tensor:
        """Return the values `[B]`, using the first `numbers` `[B]` numbers of each row.

        A term is a product of factors. Its value is 0 or +-2^l, where l is the sum of the factors' logarithms modulo 5.
        """
        digits, before = symbols[:, ::2], symbols[:, 1::2]
        first = torch.full_like(digits[:, :1], PLUS)
        before = torch.cat((first, before), dim=1)[:, : digits.shape[1]]  # the operator before each number
        inside = _inside(numbers, digits.shape[1]).long()
        starts = (before != TIMES).long()
        term = starts.cumsum(1) - 1
        logarithms = (digits == 2).long() + 2 * (digits == 4).long() + 3 * (digits == 3).long()

        def add_up(values: Tensor) -> Tensor:
            return torch.zeros_like(digits).scatter_add_(1, term, values * inside)

        signs = add_up(starts * (1 - 2 * (before == MINUS).long()))
        power = add_up(logarithms) % 4
        products = (1 + power + (power == 2).long() - (power == 3).long()) * (add_up((digits == 0).long()) == 0)
        return (signs * products).sum(1) % MODULUS

    def distributions(self, longest: int) -> np.ndarray:
        """Return the probabilities; the state of the recursion is the sum of finished terms and the current term."""
        state = np.zeros((MODULUS, MODULUS))
        state[0] = 1 / MODULUS
        total, term = np.indices((MODULUS, MODULUS))
        chances = _uniform(longest, MODULUS)
        for length in range(1, longest + 1, 2):
            chances[length] = np.bincount(((total + term) % MODULUS).ravel(), state.ravel(), MODULUS)
            following = np.zeros_like(state)
            for digit in range(MODULUS):
                np.add.at(following, (total, term * digit % MODULUS), state / 15)
                for signed in (digit, -digit % MODULUS):
                    np.add.at(following, ((total + term) % MODULUS, np.full_like(term, signed)), state / 15)
            state = following
        return chances


class BracketedArithmetic(Language):
    """The value modulo 5 of an expression with brackets (`_expressions.py`).

    Args:
        operators: the operators to choose from, all equally likely; an operator may occur twice.
    """

    alphabet, answers = MODULUS + 5, MODULUS

    def __init__(self, *operators: int) -> None:
        self.operators = operators

    def strings(self, draws: Draws, examples: Tensor, lengths: Tensor, steps: int) -> tuple[Tensor, Tensor]:
        """Return the strings, generated on the CPU because the sizes of their parts depend on the draws."""
        symbols, values = expressions(draws, examples.cpu(), lengths.cpu(), steps, self.operators)
        return symbols.to(examples.device), values.to(examples.device)

    def distributions(self, longest: int) -> np.ndarray:
        return value_distributions(longest, self.operators)
