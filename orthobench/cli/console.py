"""Consoles for tables and live displays: texts are printed as they are, without markup and control characters."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import rich.console
from rich.segment import Segment

from orthobench.execution.output import harmless


class Console(rich.console.Console):
    """A console of rich that styles what the program styles, and nothing that a text asks for."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*arguments, **options):
            yield Segment(text if control else harmless(text), style, control)
