r"""Write tables as LaTeX: numbers in number columns, for the packages booktabs and siunitx."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection

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
CELL = re.compile(rf"({NUMBER})(?: {PLUS_MINUS} ({NUMBER}))?(?: \[({NUMBER}|-?inf), ({NUMBER}|-?inf)\])?")
"""A cell with nothing but a number, its error and its interval."""
COUNT = re.compile(r"≈?\d[\d.,]*k?(?: of \d+)?|")
"""A cell with a rounded number or a share, which is aligned to the right."""
WRAPPED = 16
"""The letters from which on the text of a column is broken into lines; a heading is, after fewer."""
LETTERS = 52
"""The letters that fit next to each other into a column of a paper, 3.25 inches, in this size."""


def latex_table(title: str, shown: pd.DataFrame, bold: Collection[tuple[int, int]] = ()) -> str:
    r"""Return a table as LaTeX, as wide as one column of a paper, or as both if it does not fit into one.

    A column with numbers is siunitx's `S`, and their intervals are in a column of their own.

    Args:
        shown: cells of text.
        bold: the cells to print in bold, by row and column.
    """
    columns: list[tuple[str, str, list[str]]] = []  # each with its kind, its heading and its cells
    letters = 0
    for at, heading in enumerate(shown.columns):
        texts = [" ".join(text.split()) for text in shown.iloc[:, at]]
        cells = [CELL.fullmatch(text) for text in texts]
        longest, word = (max(map(len, parts), default=0) for parts in (texts, " ".join(texts).split()))
        letters += 2 + (longest if any(cells) else min(longest, max(word, WRAPPED)))
        name, _, level = heading.partition(" [") if any(cell and cell[3] for cell in cells) else (heading, "", "")
        marks = [r"\bfseries " * ((row, at) in bold) for row in range(len(texts))]
        if any(cells):
            numbers = [
                _number(cell) if cell else f"{{{escaped(text)}}}" for cell, text in zip(cells, texts, strict=True)
            ]
            columns.append(("S", f"{{{_stacked(name)}}}", numbers))
        else:
            is_wrapped = longest > WRAPPED
            side = "r" if all(COUNT.fullmatch(text) for text in texts) else "l"
            kind, heading = (
                (r">{\raggedright\arraybackslash}X", escaped(name)) if is_wrapped else (side, _stacked(name))
            )
            columns.append((kind, heading, [*map(escaped, texts)]))
        columns[-1] = (*columns[-1][:2], [mark + text for mark, text in zip(marks, columns[-1][2], strict=True)])
        if level:
            columns.append((r"@{\,}l", _stacked(f"[{level}"), [_interval(cell) for cell in cells]))
    frame = pd.DataFrame({number: cells for number, (*_, cells) in enumerate(columns)})
    # Small, because a table has to fit into a column of the text.
    style = {"footnotesize": "{}", "setlength": r"{\tabcolsep}{3pt}"}
    table = (
        frame.set_axis([heading for _, heading, _ in columns], axis="columns")
        .style.hide(axis="index")
        .set_table_styles([{"selector": command, "props": f":{given};"} for command, given in style.items()])
        .to_latex(
            column_format=f"@{{}}{''.join(kind for kind, *_ in columns)}@{{}}",
            caption=escaped(" ".join(title.split())),
            position_float="centering",
            hrules=True,
            environment="table*" if letters > LETTERS else "table",
        )
    )
    packages = ["booktabs", "siunitx"]
    if any(kind.endswith("X") for kind, *_ in columns):
        packages.append("tabularx")
        table = table.replace(r"\begin{tabular}", r"\begin{tabularx}{\linewidth}").replace(
            "end{tabular}", "end{tabularx}"
        )
    options = ["separate-uncertainty = true"]
    options += ["text-series-to-math = true"] if bold else []  # else numbers are never bold
    lines = [rf"% \usepackage{{{name}}}" for name in packages] + [rf"% \sisetup{{{', '.join(options)}}}"]
    return "\n".join([*lines, table])


def _stacked(heading: str) -> str:
    """Return a heading in lines, because a column would otherwise be as wide as its heading."""
    lines = textwrap.wrap(heading, WRAPPED * 2 // 3, break_long_words=False) or [""]
    texts = [f"{{{escaped(line)}}}" for line in lines]  # in braces, because a bracket after a line's end is an option
    stack = r"\\".join(texts)
    return rf"\shortstack{{{stack}}}" if len(lines) > 1 else escaped(heading)


def _number(cell: re.Match[str]) -> str:
    r"""Return the number of a cell for an `S` column, which takes no error of a number with an exponent."""
    value, error = (_plain(cell[part]) for part in (1, 2))
    if error and "e" in value + error:
        return rf"{{\num{{{value}}} $\pm$ \num{{{error}}}}}"
    return f"{value} +- {error}" if error else value


def _interval(cell: re.Match[str] | None) -> str:
    """Return the interval of a cell that has one."""
    if cell is None or not cell[3]:
        return ""
    ends = (rf"\num{{{_plain(cell[part])}}}".replace(r"\num{inf}", r"$\infty$") for part in (3, 4))
    return f"[{', '.join(ends)}]".replace(r"\num{-inf}", r"$-\infty$")


def _plain(number: str | None) -> str:
    return (number or "").replace(",", "").replace(MINUS, "-")


def escaped(text: str) -> str:
    """Return text with LaTeX's special characters escaped."""
    return "".join(ESCAPES.get(character, character) for character in text)
