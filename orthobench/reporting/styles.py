"""Colours and lines of models: the same for a model on every page."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.papers import papers

# Okabe and Ito's palette, which is distinguishable with every common colour blindness. Yellow and black are left out:
# they vanish on a light or a dark ground. Models that share a colour differ by dashes and, as points, by symbols.
# Variants of a model differ by markers.
PALETTE = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#56B4E9", "#E69F00")
DASHES = ("solid", "dash", "dot", "dashdot", "longdash", "longdashdot")
SYMBOLS = ("circle", "square", "diamond", "triangle-up", "cross", "star")
MARKERS = ("", "circle", "square", "diamond", "triangle-up", "x", "cross", "star")


@dataclass(frozen=True)
class Style:
    color: str
    dash: str
    symbol: str = "circle"
    marker: str = ""

    @property
    def number(self) -> int:
        """Return the colour's index in the palette; by it the page has a brighter colour for a dark ground."""
        return PALETTE.index(self.color)

    @property
    def band(self) -> str:
        red, green, blue = (int(self.color[i : i + 2], 16) for i in (1, 3, 5))
        return f"rgba({red},{green},{blue},0.18)"


class Styles:
    """A style for every model, by its rank among the papers' models, followed by all other models."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        ranked = dict.fromkeys(experiment.model for paper in papers() for experiment in paper.experiments())
        models = {variant.run.model for condition in conditions for variant in condition.variants}
        ranked |= dict.fromkeys(sorted(models - ranked.keys()))
        self._ranks = {model: rank for rank, model in enumerate(ranked)}

    def of_model(self, model: str) -> Style:
        rank = self._ranks[model]
        group = rank // len(PALETTE) % len(DASHES)
        return Style(PALETTE[rank % len(PALETTE)], DASHES[group], SYMBOLS[group])

    def of(self, condition: Condition, variant: VariantData) -> Style:
        style = self.of_model(variant.run.model)
        same = [other.label for other in condition.variants if other.run.model == variant.run.model]
        return replace(style, marker=MARKERS[same.index(variant.label) % len(MARKERS)])
