"""Colours, dashes and symbols of models, which are the same on every page.

A built-in model names its look, a dash and a symbol, in its class. Two of them never share both, so their lines differ
in greyscale and without any colour, and their colours follow from the two. Where models that are among the best of a
condition would share a colour, one gets another in the whole report. So a model has one colour on a page, or is grey
in a figure whose first twelve models include another one of its colour. A test computes the contrast of every colour
with the light and the dark background (at least 3:1). It also computes the distances between colours for normal sight,
and for protanopia, deuteranopia and tritanopia.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import count, product

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.errors import UsageError
from orthobench.spec.index import built_in

PALETTE = (
    "#2E53F2",
    "#F44F0C",
    "#245E4E",
    "#C6439A",
    "#271E95",
    "#4C4507",
    "#0098BE",
    "#A66736",
    "#4E081A",
    "#937E63",
    "#8C4FCA",
    "#560759",
)
"""Colours on a light background; `page.css` defines these, and the colours on a dark background, as `--model-N`."""
GREY = "#888888"
"""The colour of baselines, lines without a model, and models after the twelfth; its contrast is above 3:1 on both
backgrounds."""
FAMILIES = {"orthogonal": 0, "gated": 1, "plain": 2, "linear": 10, "ODE": 9}
"""The number of the colour in the palette of each family of built-in models, as in `page.css`; others are grey."""
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
ALL_SYMBOLS = (*SYMBOLS, *(f"{symbol}-open" for symbol in SYMBOLS))
LOOKS = tuple(
    (DASHES[step % len(DASHES)], ALL_SYMBOLS[(step + step // len(DASHES)) % len(ALL_SYMBOLS)])
    for step in range(len(DASHES) * len(ALL_SYMBOLS))
)
"""Every pair of a dash and a symbol once; two that follow each other differ in both."""
NEAR = 8
"""The models of a condition, the best first, whose colours differ before those of others do."""
PARTS = 4
"""The number of lines of one variant in one figure that have different styles."""


@dataclass(frozen=True)
class Style:
    """The look of a curve: the colour, the dash of its line and the symbol of its points."""

    color: str
    dash: str
    symbol: str = "circle"

    @property
    def number(self) -> int:
        """The colour's index in the palette, by which the page finds the brighter colour for a dark background."""
        return (*PALETTE, GREY).index(self.color)

    def turned(self, turn: int) -> Style:
        """Return the style in a later colour of the palette; 0 is its own."""
        return replace(self, color=PALETTE[(self.number + turn) % len(PALETTE)]) if turn else self

    @property
    def band(self) -> str:
        """The colour of a band between seeds."""
        red, green, blue = (int(self.color[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


class Styles:
    """A style for every model in a report: that of its look, or a free one for a model without a look.

    A model without a look gets one that no built-in model has, and no other model in the report, while there are any.
    """

    def __init__(self, conditions: Sequence[Condition]) -> None:
        models = {variant.run.model for condition in conditions for variant in condition.variants}
        shipped = shipped_styles()
        styles = {model: style for model, style in shipped.items() if model in models}
        free = _free_looks(shipped.values())
        styles |= {model: _style_of(*next(free)[1]) for model in sorted(models - shipped.keys())}
        colors = _colors_of_report(conditions, styles)
        own = {model: replace(styles[model], color=color) for model, color in colors.items()}
        self._styles = shipped | styles | own
        self._lines: dict[int, tuple[Condition, dict[tuple[str, int], Style]]] = {}

    def of_model(self, model: str) -> Style:
        """Return a model's style."""
        return self._styles[model]

    def of(self, condition: Condition, variant: VariantData, part: int = 0) -> Style:
        """Return the style of a variant's line under a condition.

        The first line of a model's first variant has the model's look. All others get a free pair of dash and symbol,
        and have the model's colour if there are several models. Beyond 72 lines pairs repeat in other colours.

        Args:
            part: the number of the variant's line, below `PARTS`; each matrix or state has a line.
        """
        if id(condition) not in self._lines:
            self._lines[id(condition)] = (condition, self._assigned(condition))
        return self._lines[id(condition)][1][variant.label, part % PARTS]

    def _assigned(self, condition: Condition) -> dict[tuple[str, int], Style]:
        """Return the style of each line by the variant's label and the part; a single model uses all colours."""
        first = {variant.run.model: variant.label for variant in reversed(condition.variants)}
        models = [*dict.fromkeys(variant.run.model for variant in condition.variants)]
        colors = self._colors(models)
        styles = {(first[model], 0): replace(self.of_model(model), color=colors[model]) for model in models}
        free = _free_looks(styles.values())
        for part, variant in product(range(PARTS), condition.variants):
            if (variant.label, part) not in styles:
                own = replace(self.of_model(variant.run.model), color=colors[variant.run.model])
                if len(models) == 1:
                    own = own.turned(len(styles)) if len(styles) < len(PALETTE) else replace(own, color=GREY)
                turn, look = next(free)
                styles[variant.label, part] = Style(own.turned(turn).color, *look)
        return styles

    def _colors(self, models: Sequence[str]) -> dict[str, str]:
        """Return the colour of each model of a figure: its own, or grey if taken or after the twelfth model."""
        result: dict[str, str] = {}
        for model in models[: len(PALETTE)]:
            own = self.of_model(model).color
            result[model] = GREY if own in result.values() else own
        return dict.fromkeys(models, GREY) | result


def color_of_family(family: str) -> str:
    """Return the colour of a family of models, which is the same in all pictures of families."""
    return PALETTE[FAMILIES[family]] if family in FAMILIES else GREY


def _colors_of_report(conditions: Sequence[Condition], styles: Mapping[str, Style]) -> dict[str, str]:
    """Return a colour for each model that a condition has among its first twelve: that of its look, or another one.

    The models that are most often among the first `NEAR` choose first. Each takes the colour that the fewest models
    next to it have, where those of the first `NEAR` count before the others.
    """
    drawn = [[*dict.fromkeys(variant.run.model for variant in each.variants)][: len(PALETTE)] for each in conditions]
    near = Counter(model for models in drawn for model in models[:NEAR])
    result: dict[str, str] = {}
    for model in sorted({model for models in drawn for model in models}, key=lambda model: (-near[model], model)):
        around = [models for models in drawn if model in models]
        others = Counter(result[other] for models in around for other in models if other in result)
        best = [models[:NEAR] for models in around if model in models[:NEAR]]
        rivals = Counter(result[other] for models in best for other in models if other in result)
        start = styles[model].number
        turned = [PALETTE[(start + turn) % len(PALETTE)] for turn in range(len(PALETTE))]
        result[model] = min(turned, key=lambda color: (rivals[color], others[color]))
    return result


@cache
def shipped_styles() -> dict[str, Style]:
    """Return the styles of the built-in models that have a look, by name.

    Raises:
        UsageError: a look is not a dash and a symbol.
    """
    looks = {plugin["name"]: plugin.get("look") for plugin in built_in()["plugins"].values()}
    return {model: look_of(model, look) for model, look in looks.items() if look}


def look_of(model: str, look: str) -> Style:
    """Return the style of a look; its two parts decide the colour."""
    dash, _, symbol = look.partition(" ")
    if dash not in DASHES or symbol not in ALL_SYMBOLS:
        raise UsageError(
            f"the look '{look}' of the model {model} should be a dash ({', '.join(DASHES)}) and a symbol "
            f"({', '.join(ALL_SYMBOLS)}), such as 'dash square'"
        )
    return _style_of(dash, symbol)


def _style_of(dash: str, symbol: str) -> Style:
    """Return the style of a look; each of the twelve colours has six of the 72 looks."""
    row, column = DASHES.index(dash), ALL_SYMBOLS.index(symbol)
    number = (column - row) % len(SYMBOLS) + len(SYMBOLS) * ((row + column // len(SYMBOLS)) % 2)
    return Style(PALETTE[number], dash, symbol)


def _free_looks(taken: Iterable[Style]) -> Iterator[tuple[int, tuple[str, str]]]:
    """Yield the looks that none of these styles has, again and again, each with how often it came before."""
    present = {(style.dash, style.symbol) for style in taken}
    free = [look for look in LOOKS if look not in present] or LOOKS
    return ((turn, look) for turn in count() for look in free)
