"""Consoles for tables and live displays, which print text without interpreting markup or control characters."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import Any

from orthobench.system.output import harmless

# Kept, because rich draws a number when it is imported, and Python's generator belongs to the program of the user.
_GENERATOR = random.getstate()
import rich.console  # noqa: E402
from rich.segment import Segment  # noqa: E402

random.setstate(_GENERATOR)


class Console(rich.console.Console):
    """A rich console that applies the styles of the program, and ignores markup in the text that it prints."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*arguments, **options):
            yield Segment(text if control else harmless(text), style, control)
