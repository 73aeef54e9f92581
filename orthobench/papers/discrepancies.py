"""Where the sources of a paper's numbers disagree: the register `docs/discrepancies.md`, which the package contains."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

ROW = re.compile(r"^\| (D-\d+) \|(.+)\|$", re.M)


@dataclass(frozen=True)
class Discrepancy:
    """An entry of the register, as Markdown.

    Attributes:
        number: the number by which notes cite it, such as "D-04".
        first: what one source says.
        second: what the other source says.
        decision: what orthobench does.
    """

    number: str
    first: str
    second: str
    decision: str


@cache
def discrepancies() -> list[Discrepancy]:
    """Read the register."""
    register = files(__package__).joinpath("discrepancies.md").read_text("utf-8")
    rows = [(number, re.split(r" \| ", cells.strip())) for number, cells in ROW.findall(register)]
    return [Discrepancy(number, *cells) for number, cells in rows]
