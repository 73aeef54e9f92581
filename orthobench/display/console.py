"""Consoles for tables and live displays, which print text without interpreting markup or control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment

from orthobench.system.output import harmless


class Console(rich.console.Console):
    """A rich console that applies the styles of the program, and ignores markup in the text that it prints."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*arguments, **options):
            yield Segment(text if control else harmless(text), style, control)
