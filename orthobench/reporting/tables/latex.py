r"""Write tables as LaTeX: text escaped, numbers as siunitx's `\num`, for the packages booktabs and siunitx."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

import pandas as pd

MINUS, PLUS_MINUS = "−", "±"
ESCAPES = {
    "\\": r"\textbackslash{}",
    "&": r"\&",
    "%": r"\%",
    "$": r"\$",
    "#": r"\#",
    "_": r"\_",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "≈": r"$\approx$",
    "–": "--",
    PLUS_MINUS: r"$\pm$",
    MINUS: "$-$",
    "τ": r"$\tau$",
    "ε": r"$\varepsilon$",
    "λ": r"$\lambda$",
    "∂": r"$\partial$",
    "‖": r"$\|$",
    "ᵀ": r"$^\top$",
    "∞": r"$\infty$",
}
NUMBER = rf"[-+{MINUS}]?\d+(?:,\d{{3}})*(?:\.\d+)?(?:e[-+]?\d+)?"
NUMBER_WITH_ERROR = re.compile(rf"(?<![\w.])({NUMBER})(?: {PLUS_MINUS} ({NUMBER}))?(?![\w.])")
NUMERIC_CELL = re.compile(
    rf"(?:{NUMBER})(?: {PLUS_MINUS} (?:{NUMBER}))?(?: \[(?:{NUMBER}|-?inf), (?:{NUMBER}|-?inf)\])?"
)


def latex_table(
    title: str,
    headings: Sequence[tuple[str, str]],
    rows: Sequence[Sequence[str]],
    bold: Collection[tuple[int, int]] = (),
) -> str:
    r"""Return a table as LaTeX.

    Args:
        headings: for each column its group, which spans the group's columns, and its name.
        rows: cells of text; cells with nothing but a number, its error and its interval become `\num`.
        bold: the cells to print in bold, by row and column.
    """
    cells = [[latex_cell(cell) for cell in row] for row in rows]
    for row, column in bold:
        cells[row][column] = rf"\textbf{{{cells[row][column]}}}"
    groups = [tuple(map(escaped, heading)) for heading in headings]
    columns = pd.MultiIndex.from_tuples(groups) if any(group for group, _ in groups) else [name for _, name in groups]
    styler = pd.DataFrame(cells, columns=columns).style.hide(axis="index")
    table = styler.to_latex(
        column_format="l" + "r" * (len(headings) - 1),
        caption=escaped(title),
        position_float="centering",
        hrules=True,
        multicol_align="c",
    )
    packages = ["% \\usepackage{booktabs}", "% \\usepackage{siunitx}"]
    packages += ["% \\sisetup{text-series-to-math = true}"] if bold else []  # else \\num is never bold
    return "\n".join([*packages, table])


def latex_cell(text: str) -> str:
    """Return a cell with its numbers for siunitx if it has nothing else, or else as escaped text."""
    text = " ".join(text.split())
    if not NUMERIC_CELL.fullmatch(text):
        return escaped(text)
    return NUMBER_WITH_ERROR.sub(_num, text).replace("inf", r"$\infty$")


def _num(match: re.Match[str]) -> str:
    value, error = (part.replace(",", "").replace(MINUS, "-") if part else "" for part in match.groups())
    return rf"\num{{{value} +- {error}}}" if error else rf"\num{{{value}}}"


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(ESCAPES.get(character, character) for character in " ".join(text.split()))
