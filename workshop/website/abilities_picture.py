"""Draw the first screen's table as an SVG picture, for documents in which nothing can be clicked."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from orthobench.analysis.scores import percents
from orthobench.reporting.account.abilities import Abilities, AbilityCell, Family
from orthobench.reporting.figures.styles import FAMILIES
from orthobench.reporting.page.sparks import strip

NAMES = ("ground", "ink", "faint", "line", "card", "yes")
LIGHT = dict(zip(NAMES, ("#ffffff", "#1a1f26", "#56616d", "#c9d0d8", "#f5f7f9", "#e0eef8"), strict=True))
DARK = dict(zip(NAMES, ("#0d1117", "#e8ebef", "#a3aeba", "#4a545f", "#1d2228", "#17304a"), strict=True))
LEFT, COLUMN, HEAD, ROW, FOOT = 118, 150, 80, 66, 24
"""Sizes in pixels: the widths of the families' names and of a column, and the heights of the parts."""
LONGEST = 20
"""The most letters of the name of a cell."""
LONG = 15
"""From this many letters on, a score with its range is smaller, because the count stands on its left."""


def picture(abilities: Abilities, is_dark: bool) -> str:
    """Draw how many members of each family reach 90 on each task, and the scores of all."""
    colors = DARK if is_dark else LIGHT
    palette = re.findall(r"--model-(\d+): (#\w+)", files("orthobench.reporting.page").joinpath("page.css").read_text())
    hues = dict(palette[13:26] if is_dark else palette[:13])
    style = (
        f"text{{fill:{colors['ink']}}}.faint{{fill:{colors['faint']};font-size:11px}}.axis,.limit{{stroke:{colors['line']}}}"
        ".limit{stroke-dasharray:2 2}.rest{opacity:.65}.range{stroke-width:3;opacity:.6}.best{stroke-width:1.4}"
        f".best.hollow,.rest.hollow{{fill:{colors['ground']}}}"
        + "".join(
            f".f-{name} :is(.rest,.best,.key){{fill:{hues[str(number)]}}}"
            f".f-{name} :is(.range,.best,.hollow){{stroke:{hues[str(number)]}}}"
            for name, number in FAMILIES.items()
        )
    )
    width = LEFT + COLUMN * len(abilities.columns) + 8
    height = HEAD + ROW * len(abilities.families) + FOOT
    note = (
        "“n of m”: cells whose median seed reaches 90 (dashes) of 100; large dot: the best cell, with its lowest and "
        "highest seed; “+n”: others as good"
    )
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="system-ui, sans-serif" font-size="12" role="img" '
            'aria-label="How many cells of each family reach 90 of 100 on each task">',
            f"<style>{style}</style>",
            f'<rect width="{width}" height="{height}" fill="{colors["ground"]}"/>',
            *_heads(abilities),
            *(line for number, family in enumerate(abilities.families) for line in _row(number, family, colors)),
            f'<text class="faint" x="8" y="{height - 8}">{note}</text>',
            "</svg>\n",
        ]
    )


def _heads(abilities: Abilities) -> Iterator[str]:
    for number, column in enumerate(abilities.columns):
        x = LEFT + COLUMN * number + 8
        notes = column.note.replace(", ", " · ").split(" · ")
        lines = [("", column.label), *(("faint", line) for line in notes)]
        for above, (kind, words) in enumerate(reversed(lines)):
            bold = "" if kind else ' font-weight="bold"'
            yield f'<text class="{kind}" x="{x}" y="{HEAD - 8 - 14 * above}"{bold}>{_escaped(words)}</text>'


def _row(number: int, family: Family, colors: dict[str, str]) -> Iterator[str]:
    top = HEAD + ROW * number
    yield f'<g class="f-{_escaped(family.name)}">'
    yield f'<rect class="key" x="8" y="{top + 9}" width="10" height="10" rx="2"/>'
    for line, words in enumerate(_lines(family.title, 13)):
        yield f'<text x="24" y="{top + 18 + 15 * line}" font-weight="bold">{_escaped(words)}</text>'
    for place, cell in enumerate(family.cells):
        if cell is None:
            continue
        x = LEFT + COLUMN * place
        fill = colors["yes" if cell.reach else "card"]
        yield f'<rect x="{x + 1}" y="{top + 1}" width="{COLUMN - 2}" height="{ROW - 2}" rx="4" fill="{fill}"/>'
        weight = "bold" if cell.reach else "normal"
        count = f"{cell.reach} of {cell.counted}"
        yield f'<text x="{x + 8}" y="{top + 19}" font-size="14" font-weight="{weight}">{count}</text>'
        yield f'<g transform="translate({x + 4} {top + 21})">{strip(cell)}</g>'
        score = _score(cell)
        size = 10 if len(score) < LONG else 9  # beside the count, which is on the left
        end = f'x="{x + COLUMN - 4}" y="{top + 18}" text-anchor="end"'
        yield f'<text class="faint" {end} style="font-size:{size}px">{score}</text>'
        yield f'<text x="{x + 8}" y="{top + 57}">{_escaped(_name(cell))}</text>'
    yield "</g>"


def _score(cell: AbilityCell) -> str:
    """Return the score of the best member with the range of its seeds."""
    best = cell.best.cell
    return f"{cell.percent}" + (f" ({percents(best.low, best.high)})" if best.is_spread else "")


def _name(cell: AbilityCell) -> str:
    """Return the best member and how many others are as good; a long name is cut. None is best if none learns."""
    if not cell.name:
        return ""
    more, name = f" +{cell.as_good}" if cell.as_good else "", cell.name
    space = LONGEST - len(more)
    return (name if len(name) <= space else f"{name[: space - 1].rstrip()}…") + more


def _lines(words: str, longest: int) -> list[str]:
    """Return a name in one line, or in two if it is too long."""
    first, _, rest = words.partition(" ")
    return [words] if len(words) <= longest or not rest else [first, rest]


def _escaped(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
