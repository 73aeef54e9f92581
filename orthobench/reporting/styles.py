"""Colours, dashes and symbols of models: the same for a model on every page.

Two shipped models never share both dash and symbol, so their lines differ in greyscale and without any colour. A test
computes the contrast of every colour with the light and the dark ground (3:1 at least). It also computes the distances
between colours for normal sight, for protanopia, deuteranopia and tritanopia, and in greyscale.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orthobench.analysis.conditions import Condition, VariantData

PALETTE = ("#2E53F2", "#F44F0C", "#245E4E", "#C6439A", "#271E95", "#4C4507")
"""Colours on a light ground; `page.css` has these and those for a dark ground as `--model-N`."""
DARK_PALETTE = ("#6A6AE0", "#F84A10", "#59B164", "#FF92B5", "#55FBFF", "#E1D307")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
ALL_SYMBOLS = (*SYMBOLS, *(f"{symbol}-open" for symbol in SYMBOLS))
PARTS = 4
"""Lines of one variant in one figure that have styles of their own."""

MODELS = (
    "scornn", "lstm", "full_urnn", "urnn", "enrnn", "ornn",
    "rnn", "eurnn", "spectral_rnn", "gru", "exprnn", "antisymmetric",
    "nnrnn", "goru", "antisymmetric_gated", "soft_orthogonal", "kru", "lru",
    "dtriv", "scurnn", "cornn", "lem", "lipschitz_rnn", "ablation",
    "irnn", "wrnn", "ind_rnn", "linoss", "min_gru", "min_lstm",
    "slstm", "mlstm", "deltanet", "deltaproduct", "gated_deltanet", "mamba",
)  # fmt: skip
"""The shipped models by rank: six colours, a row of this table for each dash."""


@dataclass(frozen=True)
class Style:
    """How a curve looks: the colour, the dash of its line and the symbol of its points."""

    color: str
    dash: str
    symbol: str = "circle"

    @property
    def number(self) -> int:
        """Return the colour's index in the palette; by it the page has a brighter colour for a dark ground."""
        return PALETTE.index(self.color)

    @property
    def band(self) -> str:
        """Return the colour of a band between seeds."""
        red, green, blue = (int(self.color[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


class Styles:
    """A style for every model: that of its rank in `MODELS`, and for other models the ranks that follow."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        models = {variant.run.model for condition in conditions for variant in condition.variants}
        ranked = (*MODELS, *sorted(models - set(MODELS)))
        self._ranks = {model: rank for rank, model in enumerate(ranked)}
        self._lines: dict[int, tuple[Condition, dict[tuple[str, int], Style]]] = {}

    def of_model(self, model: str) -> Style:
        """Return a model's style."""
        group, number = divmod(self._ranks[model], len(PALETTE))
        return Style(PALETTE[number], DASHES[group % len(DASHES)], SYMBOLS[(number + group) % len(SYMBOLS)])

    def of(self, condition: Condition, variant: VariantData, part: int = 0) -> Style:
        """Return the style of a variant's line under a condition.

        The first line of a model's first variant has the model's style. All others take a free pair of dash and
        symbol, and keep its colour where there are several models. Pairs repeat only beyond 72 lines.

        Args:
            part: the number of the variant's line, below `PARTS`: matrices and states have a line each.
        """
        if id(condition) not in self._lines:
            self._lines[id(condition)] = (condition, self._assigned(condition))
        return self._lines[id(condition)][1][variant.label, part % PARTS]

    def _assigned(self, condition: Condition) -> dict[tuple[str, int], Style]:
        """Return the style of each line by the variant's label and the part; of a single model in all colours."""
        styles: dict[tuple[str, int], Style] = {}
        is_alone = len({variant.run.model for variant in condition.variants}) == 1
        first: set[str] = set()
        for variant in condition.variants:
            if variant.run.model not in first:
                first.add(variant.run.model)
                styles[variant.label, 0] = self.of_model(variant.run.model)
        taken = {(style.dash, style.symbol) for style in styles.values()}
        for part in range(PARTS):
            for variant in condition.variants:
                if (variant.label, part) in styles:
                    continue
                if len(taken) == len(DASHES) * len(ALL_SYMBOLS):
                    taken.clear()
                own = self.of_model(variant.run.model)
                look = next(look for look in _looks(own) if look not in taken)
                taken.add(look)
                turn = len(styles) if is_alone else 0
                styles[variant.label, part] = Style(PALETTE[(own.number + turn) % len(PALETTE)], *look)
        return styles


def _looks(own: Style) -> Iterator[tuple[str, str]]:
    """Yield every pair of dash and symbol once: first those that differ from this style in both."""
    dash, symbol = DASHES.index(own.dash), ALL_SYMBOLS.index(own.symbol)
    for step in range(1, len(DASHES) * len(ALL_SYMBOLS) + 1):
        turn = step + step // len(DASHES)
        yield DASHES[(dash + step) % len(DASHES)], ALL_SYMBOLS[(symbol + turn) % len(ALL_SYMBOLS)]
