"""Draw the rooms of ARCHITECTURE.md in Mermaid: `make drawings` renews the block, from the table that follows it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import cache

from workshop.rooms import ROOT, table

FILE = ROOT / "ARCHITECTURE.md"
BLOCK = re.compile(r"(?<=```mermaid\nflowchart TB\n)[^`]*(?=```)")
"""The drawing of the rooms; that of a run is from left to right, and written by hand."""


def reduced(imports: Mapping[str, set[str]]) -> dict[str, list[str]]:
    """Return the transitive reduction: of each room's imports those that none of its other imports reaches."""

    @cache
    def reached(room: str) -> frozenset[str]:
        return frozenset().union(*({name} | reached(name) for name in imports[room]))

    return {
        room: sorted(name for name in names if not any(name in reached(other) for other in names))
        for room, names in imports.items()
    }


def drawn() -> str:
    """Return ARCHITECTURE.md with the drawing of its table."""
    arrows = [f"{room} --> {' & '.join(names)}\n" for room, names in reduced(table()).items() if names]
    return BLOCK.sub("".join(arrows), FILE.read_text("utf-8"))


if __name__ == "__main__":
    FILE.write_text(drawn(), "utf-8")
