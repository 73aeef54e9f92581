"""A table of a study's section."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class StudyTable:
    """A table of a study's section; cells are text."""

    caption: str
    headings: tuple[str, ...]
    rows: list[tuple[str, ...]]
