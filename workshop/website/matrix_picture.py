"""Draw the matrix as an SVG picture, for documents in which nothing can be clicked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from orthobench.analysis.scores import SOLVED
from orthobench.reporting.account.matrix import MatrixColumn, MatrixRow, ResultMatrix

LINEAR, EDGE, OWN, EARLIER = "ᴸ", "ᴱ", "ᴼ", "ⱽ"
"""The marks of a linear cell that cannot solve the task, of a rate at the edge of its search, of settings of a paper's
experiment that were chosen here, because no source states them, and of runs of an earlier version of the model."""
SEEDS = {1: "¹", 2: "²"}
"""The marks of a median over fewer seeds than three."""
LIGHT = {"ground": "#ffffff", "ink": "#1a1f26", "faint": "#56616d", "full": (0, 90, 150), "empty": (245, 247, 249)}
DARK = {"ground": "#0d1117", "ink": "#e8ebef", "faint": "#a3aeba", "full": (42, 95, 184), "empty": (29, 34, 40)}
CELL, ROW, TOP, BLOCK, LETTER, LINE = 44, 22, 150, 33, 6.8, 13
"""Sizes in pixels: the width and height of a cell, the heights of the headings of columns and of blocks, the width of a
letter, and the height of a line of a block's heading."""


def ranked(rows: Sequence[MatrixRow], columns: Sequence[int]) -> list[MatrixRow]:
    """Return rows in the order of the tasks that they solve in these columns, and then of their scores."""

    def place(row: MatrixRow) -> tuple[int, float, str]:
        scores = [cell.score for number in columns if (cell := row.cells[number]) is not None]
        return -sum(score >= SOLVED for score in scores), -sum(scores), row.label

    return sorted(rows, key=place)


def picture(matrix: ResultMatrix, dark: bool = False) -> str:
    """Draw the matrix as an SVG picture, for documents in which nothing can be clicked.

    Folded rows and columns are left out, and so are rows without a result in the other columns.
    """
    colors = DARK if dark else LIGHT
    shown = matrix.shown
    rows = [row for row in matrix.rows if not row.is_folded and any(row.cells[number] for number in shown)]
    columns = [matrix.columns[number] for number in shown]
    left = round(LETTER * max((len(row.label) for row in rows), default=0)) + 16
    slanted = [round(0.75 * LETTER * len(column.label)) for column in columns]
    above = max([0, *(size + 16 - TOP for size in slanted)])  # what long headings need beyond the usual height
    width = left + CELL * len(columns) + max(slanted[-3:], default=0)
    height = above + TOP + BLOCK + ROW * len(rows) + 10
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
            'font-family="system-ui, sans-serif" font-size="12" role="img" '
            'aria-label="Which model solves which task, from 0 to 100">',
            f'<rect width="{width}" height="{height}" fill="{colors["ground"]}"/>',
            f'<g transform="translate(0 {above})">',
            *_heads(columns, colors, left),
            *_block_heads(matrix, colors, left),
            *(line for number, row in enumerate(rows) for line in _drawn_row(number, row, shown, colors, left, dark)),
            "</g>",
            "</svg>\n",
        ]
    )


def _heads(columns: Sequence[MatrixColumn], colors: dict[str, Any], left: int) -> Iterator[str]:
    for number, column in enumerate(columns):
        x = left + CELL * number + CELL / 2
        yield (
            f'<text x="{x:g}" y="{TOP - 8}" fill="{colors["ink"]}" '
            f'transform="rotate(-45 {x:g} {TOP - 8})">{_escaped(column.label)}</text>'
        )


def _block_heads(matrix: ResultMatrix, colors: dict[str, Any], left: int) -> Iterator[str]:
    """Yield the headings of the blocks, each above a line over its columns; one that is too wide has two lines."""
    first = 0
    for words, count in matrix.blocks:
        x, width = left + CELL * first, CELL * count
        is_wide = LETTER * len(words) > width
        for above, text_line in enumerate(reversed(words.split(" ", 1) if is_wide else [words])):
            y = TOP + BLOCK - 8 - LINE * above
            yield f'<text x="{x + 2}" y="{y}" font-size="11" fill="{colors["faint"]}">{_escaped(text_line)}</text>'
        yield f'<rect x="{x + 1}" y="{TOP + BLOCK - 3}" width="{width - 2}" height="1" fill="{colors["faint"]}"/>'
        first += count


def _drawn_row(
    number: int, row: MatrixRow, shown: Sequence[int], colors: dict[str, Any], left: int, dark: bool
) -> Iterator[str]:
    y = TOP + BLOCK + ROW * number
    yield f'<text x="{left - 8}" y="{y + 15}" text-anchor="end" fill="{colors["ink"]}">{_escaped(row.label)}</text>'
    for place, cell in enumerate(row.cells[column] for column in shown):
        x = left + CELL * place
        if cell is None:
            yield f'<text x="{x + CELL / 2:g}" y="{y + 15}" text-anchor="middle" fill="{colors["faint"]}">·</text>'
            continue
        red, green, blue = (
            round(low + max(cell.score, 0.0) * (high - low))
            for low, high in zip(colors["empty"], colors["full"], strict=True)
        )
        bold = ' font-weight="bold"' if cell.is_best else ""
        ink = "#ffffff" if cell.is_far or dark else "#000000"
        known = {LINEAR: cell.linear, EDGE: cell.edge, OWN: cell.chosen_here, EARLIER: cell.version}
        letters = "".join(letter for letter, applies in known.items() if applies)
        marks = "↘" * cell.loses + letters + SEEDS.get(cell.seeds, "")
        words = f"{round(100 * cell.score)}{marks}"  # as a whole number, because a format would write -0
        yield f'<rect x="{x + 1}" y="{y + 1}" width="{CELL - 2}" height="{ROW - 2}" fill="rgb({red},{green},{blue})"/>'
        yield f'<text x="{x + CELL / 2:g}" y="{y + 15}" text-anchor="middle" fill="{ink}"{bold}>{words}</text>'


def _escaped(words: str) -> str:
    return words.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
