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

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.errors import UsageError
from orthobench.spec.index import index

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
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
ALL_SYMBOLS = (*SYMBOLS, *(f"{symbol}-open" for symbol in SYMBOLS))
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

    @property
    def band(self) -> str:
        """The colour of a band between seeds."""
        red, green, blue = (int(self.color[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


class Styles:
    """A style for every model in a report: that of its look, or a free one for a model without a look.

    A model without a look gets a colour and dash that no other model in the report has, as long as there are any left.
    Up to 864 models, no two share colour, dash and symbol.
    """

    def __init__(self, conditions: Sequence[Condition]) -> None:
        models = {variant.run.model for condition in conditions for variant in condition.variants}
        shipped = shipped_styles()
        styles = {model: style for model, style in shipped.items() if model in models}
        for model in sorted(models - shipped.keys()):
            styles[model] = _other(styles.values(), shipped.values())
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
        styles: dict[tuple[str, int], Style] = {}
        taken = _Taken()
        models = [*dict.fromkeys(variant.run.model for variant in condition.variants)]
        colors = self._colors(models)
        first: set[str] = set()
        for variant in condition.variants:
            if (model := variant.run.model) not in first:
                first.add(model)
                own = replace(self.of_model(model), color=colors[model])
                styles[variant.label, 0] = taken.add_like(own) if own in taken.styles else taken.add(own)
        for part in range(PARTS):
            for variant in condition.variants:
                if (variant.label, part) not in styles:
                    own = replace(self.of_model(variant.run.model), color=colors[variant.run.model])
                    if len(models) == 1:
                        turn = len(styles)
                        own = replace(own, color=PALETTE[(own.number + turn) % 12] if turn < len(PALETTE) else GREY)
                    styles[variant.label, part] = taken.add_like(own)
        return styles

    def _colors(self, models: Sequence[str]) -> dict[str, str]:
        """Return the colour of each model of a figure: its own, or grey if taken or after the twelfth model."""
        result: dict[str, str] = {}
        for model in models[: len(PALETTE)]:
            own = self.of_model(model).color
            result[model] = GREY if own in result.values() else own
        return dict.fromkeys(models, GREY) | result


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
    looks = {plugin["name"]: plugin.get("look") for plugin in index()["plugins"].values()}
    return {model: look_of(model, look) for model, look in looks.items() if look}


def look_of(model: str, look: str) -> Style:
    """Return the style of a look; its two parts decide the colour."""
    dash, _, symbol = look.partition(" ")
    if dash not in DASHES or symbol not in ALL_SYMBOLS:
        raise UsageError(
            f"the look '{look}' of the model {model} should be a dash ({', '.join(DASHES)}) and a symbol "
            f"({', '.join(ALL_SYMBOLS)}), such as 'dash square'"
        )
    return Style(PALETTE[_number(dash, symbol)], dash, symbol)


def _number(dash: str, symbol: str) -> int:
    """Return the number of a look's colour; each of the twelve has six of the 72 looks."""
    row, column = DASHES.index(dash), ALL_SYMBOLS.index(symbol)
    return (column - row) % len(SYMBOLS) + len(SYMBOLS) * ((row + column // len(SYMBOLS)) % 2)


def _other(present: Iterable[Style], shipped: Iterable[Style]) -> Style:
    """Return a style that no shipped and no present model has; if none is left, the first one again."""
    present, shipped = {*present}, {*shipped}
    lines = {(style.color, style.dash) for style in present}
    looks = {(style.dash, style.symbol) for style in (*present, *shipped)}
    free = [style for style in _all_styles() if style not in shipped and style not in present] or _all_styles()

    def shared(style: Style) -> tuple[bool, bool]:
        return (style.color, style.dash) in lines, (style.dash, style.symbol) in looks

    return min(free, key=shared)  # the first of the best


@cache
def _all_styles() -> tuple[Style, ...]:
    """Return every style once, by sets in which each pair of dash and symbol occurs once."""
    return tuple(
        Style(PALETTE[(_number(dash, symbol) + turn) % len(PALETTE)], dash, symbol)
        for turn in range(len(PALETTE))
        for symbols in (ALL_SYMBOLS[len(SYMBOLS) :], SYMBOLS)
        for dash in DASHES
        for symbol in symbols
    )


class _Taken:
    """The styles of a figure's lines so far, and their pairs of dash and symbol."""

    def __init__(self) -> None:
        self.styles: set[Style] = set()
        self._looks: set[tuple[str, str]] = set()
        self._free: dict[Style, Iterator[Style]] = {}

    def add(self, style: Style) -> Style:
        """Take a style, and return it."""
        self.styles.add(style)
        self._looks.add((style.dash, style.symbol))
        return style

    def add_like(self, own: Style) -> Style:
        """Take a style of this colour with a free pair of dash and symbol, else any free style in any colour."""
        # One search for all lines of a model, because a style that was taken at the last line is still taken.
        return self.add(next(self._free.setdefault(own, self._search(own)), own))

    def _search(self, own: Style) -> Iterator[Style]:
        """Yield the styles that are free when the search comes to them."""
        for look in _looks(own.dash, own.symbol):
            if look not in self._looks:
                yield Style(own.color, *look)
        for turn in range(len(PALETTE)):
            color = PALETTE[(own.number + turn) % len(PALETTE)]
            for look in _looks(own.dash, own.symbol):
                if (style := Style(color, *look)) not in self.styles:
                    yield style


@cache
def _looks(dash: str, symbol: str) -> tuple[tuple[str, str], ...]:
    """Return every pair of dash and symbol once: first those that differ from this pair in both."""
    first, second = DASHES.index(dash), ALL_SYMBOLS.index(symbol)
    steps = ((step, step + step // len(DASHES)) for step in range(1, len(DASHES) * len(ALL_SYMBOLS) + 1))
    return tuple(
        (DASHES[(first + step) % len(DASHES)], ALL_SYMBOLS[(second + turn) % len(ALL_SYMBOLS)]) for step, turn in steps
    )
