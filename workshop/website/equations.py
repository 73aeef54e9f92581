"""Convert equations of models from the plain notation in docstrings to MathML, which browsers show without a script.

The indented lines of a docstring are its equations, such as `h_t = modReLU(W h_{t-1} + U x_t; b),   W = exp(A)`. Three
spaces separate two equations. They are translated to LaTeX token by token, and latex2mathml converts LaTeX to MathML.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from latex2mathml.converter import convert

GREEK = {
    "alpha", "beta", "gamma", "delta", "theta", "lambda", "mu", "nu", "rho", "sigma", "Theta", "Delta", "epsilon", "pi",
}  # fmt: skip
SYMBOLS = {
    "eps": r"\varepsilon",
    "dt": r"\Delta t",
    "lr": r"\eta",
    "sum": r"\sum",
    "dL": r"\partial L",
    "dRe": r"\partial \operatorname{Re}",
    "dIm": r"\partial \operatorname{Im}",
}
FUNCTIONS = {"Re", "Im", "log"}
"""Functions that occur without parentheses; a word directly before "(" is a function anyway."""
OPERATORS = {
    "<-": r"\leftarrow",
    "...": r"\cdots",
    "||": r"\Vert ",
    "(x)": r"\otimes",
    "o": r"\odot",
    "*": "^{*}",
    "'": "'",
}
TOKEN = re.compile(
    r"(?P<operator><-|\.\.\.|\|\||\(x\)|\*|'|(?<=[\w)}] )o(?= [\w(]))"
    r"|(?P<script>[_^]\{[^}]*\}|\^-?\w+|_\w)"
    r"|(?P<matrix>\[\[.*?\]\]|\[[^\[\]]*;[^\[\]]*\])"
    r"|(?P<number>\d+(?:\.\d+)?)"
    r"|(?P<word>[A-Za-z]+)"
    r"|(?P<blank>\s+)"
    r"|(?P<other>.)"
)


def docstring_parts(text: str) -> tuple[str, list[str], list[str]]:
    """Split a docstring into its first sentence, its equations, and the other paragraphs.

    A paragraph is on one line, unless it is a table.
    """
    equations: list[str] = []
    paragraphs: list[str] = []
    for block in re.split(r"\n\s*\n", text.strip()):
        lines = block.splitlines()
        if all(line.startswith("    ") for line in lines):
            equations += [part for line in lines for part in split_line(line)]
        else:
            paragraphs.append(block if block.startswith("|") else " ".join(block.split()))
    return paragraphs[0], equations, paragraphs[1:]


def split_line(line: str) -> list[str]:
    """Split a line into its equations, which three spaces after a comma or semicolon separate."""
    return [part.strip().rstrip(",;") for part in re.split(r"(?<=[,;])\s{3,}", line.strip())]


def latex(equation: str) -> str:
    """Convert an equation in plain notation to LaTeX."""
    joined = re.sub(r" \}\s+\\text\{ ", " ", "".join(_tokens(equation)))  # the words of a phrase
    return re.sub(r"(?<=[\w})]) +(?=\\operatorname)", r" \\, ", joined).strip()


def mathml(equation: str) -> str:
    """Convert an equation in plain notation to a block of MathML."""
    markup = convert(latex(equation), display="block").replace("<mi>;</mi>", "<mo>;</mo>")
    return re.sub(r"<mo>([A-Za-z]{2,})</mo>", r"<mi>\1</mi>", markup)  # an operator would have spaces around it


def _tokens(text: str) -> Iterator[str]:
    for match in TOKEN.finditer(text):
        kind, token = match.lastgroup, match[0]
        if kind == "script":
            yield token[0] + "{" + _script(token) + "}"
        elif kind == "operator":
            yield f"{OPERATORS[token]} " if token != "'" else "'"
        elif kind == "matrix":
            yield _matrix(token)
        elif kind == "word":
            yield _word(token, is_called=text.startswith("(", match.end()))
        elif kind == "blank":
            yield " "
        else:
            yield token


def _script(token: str) -> str:
    inner = token[2:-1] if token[1] == "{" else token[1:]
    return r"\top" if token == "^T" else "".join(_tokens(inner))


def _word(word: str, is_called: bool) -> str:
    if word in SYMBOLS:
        return SYMBOLS[word] + " "
    if word in GREEK:
        return f"\\{word} "
    if len(word) == 1:
        return word
    if is_called or word in FUNCTIONS:
        return rf"\operatorname{{{word}}}"
    return rf"\text{{ {word} }}"


def _matrix(token: str) -> str:
    """Return a matrix in LaTeX, from rows in brackets or from a column with semicolons between its entries."""
    rows = re.findall(r"\[([^\[\]]+)\]", token) if token.startswith("[[") else token[1:-1].split(";")
    cells = (" & ".join("".join(_tokens(cell.strip())) for cell in row.split(",")) for row in rows)
    return r"\begin{bmatrix}" + r" \\ ".join(cells) + r"\end{bmatrix}"
