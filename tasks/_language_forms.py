"""The three protocols of the formal languages, as in their programs: tokens, lengths, and where an answer is read.

D-51 and D-52 describe how they differ.

| protocol | program |
| --- | --- |
| slice | Benjamin-Walker/structured-linear-cdes, `data_dir/fl_tasks`, as published in May 2025 (76dd0dd) |
| xlstm | NX-AI/xlstm, `experiments/data/formal_language`; with brackets automl/unlocking_state_tracking |
| deepmind | google-deepmind/neural_networks_chomsky_hierarchy, `tasks` and `experiments` |
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ._expressions import MINUS, PLUS, TIMES
from ._languages import (
    BracketedArithmetic,
    CycleNavigation,
    EvenPairs,
    Language,
    ModularArithmetic,
    Parity,
)

Lengths = Callable[[int, int], list[int]]
"""Maps the shortest and the longest length in the settings to the equally likely numbers of steps."""


@dataclass(frozen=True)
class LanguageForm:
    """A language under a protocol.

    Attributes:
        tokens: the token of each abstract symbol, followed by the token that ends a string, if there is one.
        padding: the token of padded steps.
        input_size: number of tokens.
        output_size: number of classes.
        first_answer: the class of answer 0; the other answers follow.
        lengths: see `Lengths`; the numbers of steps count the token at the end.
        version: raised when the strings of this language and protocol change; the runs of the others keep their keys.
    """

    language: Language
    tokens: tuple[int, ...]
    padding: int
    input_size: int
    output_size: int
    first_answer: int
    lengths: Lengths
    version: int = 1

    @property
    def end(self) -> int:
        """The number of tokens at the end of a string, 0 or 1."""
        return len(self.tokens) - self.language.alphabet


def _as_drawn(added: int) -> Lengths:
    return lambda shortest, longest: [length + added for length in range(shortest, longest + 1)]


def _even(shortest: int, longest: int) -> list[int]:
    """Return the lengths of slice's arithmetic, where an odd length grows by 1."""
    return [length + length % 2 for length in range(shortest, longest + 1)]


def _without_answer(shortest: int, longest: int) -> list[int]:
    """Return the lengths of xlstm's arithmetic, which are odd with the answer: 2 half - 1."""
    return [2 * half - 2 for half in range((shortest + 1) // 2, (longest + 1) // 2 + 1)]


def _without_answer_and_padding(shortest: int, longest: int) -> list[int]:
    """Return the lengths of xlstm's expressions, which count the answer and a token of padding, at least 5."""
    return [max(length, 5) - 2 for length in range(shortest, longest + 1)]


def _odd_with_blank(shortest: int, longest: int) -> list[int]:
    """Return the lengths of deepmind's arithmetic, where an even length shrinks by 1 and a blank follows."""
    return [length - (length % 2 == 0) + 1 for length in range(shortest, longest + 1)]


_NUMBERS_LAST = (5, 6, 7, 8, 9, 1, 2, 3, 4)
_NUMBERS_FIRST = tuple(range(1, 12))
_FROM_ZERO = tuple(range(11))


def _regular(lengths: Lengths, arithmetic: Lengths) -> dict[str, LanguageForm]:
    """Return the languages without brackets; in slice and xlstm alike, 0 is padding and the answer is a token."""
    return {
        "parity": LanguageForm(Parity(), (1, 2), 0, 3, 3, 1, lengths),
        "even_pairs": LanguageForm(EvenPairs(), (1, 2), 0, 3, 3, 1, lengths),
        "cycle_nav": LanguageForm(CycleNavigation(), (1, 2, 3), 0, 9, 9, 4, lengths),
        "mod_arith": LanguageForm(ModularArithmetic(), _NUMBERS_LAST, 0, 10, 10, 5, arithmetic),
    }


_BRACKETS = BracketedArithmetic(PLUS, MINUS, TIMES)
_XLSTM_BRACKETS = BracketedArithmetic(PLUS, MINUS)

FORMS: dict[str, dict[str, LanguageForm]] = {
    "slice": _regular(_as_drawn(0), _even)
    | {"mod_arith_brackets": LanguageForm(_BRACKETS, _NUMBERS_FIRST, 0, 12, 12, 1, _as_drawn(0), version=2)},
    "xlstm": _regular(_as_drawn(-1), _without_answer)
    | {"mod_arith_brackets": LanguageForm(_XLSTM_BRACKETS, _FROM_ZERO, 11, 12, 12, 0, _without_answer_and_padding)},
    "deepmind": {
        "parity": LanguageForm(Parity(), (0, 1, 2), 2, 3, 2, 0, _as_drawn(1)),
        "even_pairs": LanguageForm(EvenPairs(), (0, 1, 2), 2, 3, 2, 0, _as_drawn(1)),
        "cycle_nav": LanguageForm(CycleNavigation(), (1, 2, 0, 3), 3, 4, 5, 0, _as_drawn(1)),
        "mod_arith": LanguageForm(ModularArithmetic(), (*range(8), 9), 9, 10, 5, 0, _odd_with_blank),
        "mod_arith_brackets": LanguageForm(_BRACKETS, (*range(10), 11), 11, 12, 5, 0, _as_drawn(1)),
    },
}
