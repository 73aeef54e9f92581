"""Consoles for tables and live displays, which print text without interpreting markup or control characters."""

from __future__ import annotations

import random
from collections.abc import Iterable
from typing import IO, Any

from orthobench.system.output import harmless

# Kept, because rich draws a number when it is imported, and Python's generator belongs to the program of the user.
_GENERATOR = random.getstate()
import rich.console  # noqa: E402
from rich.segment import Segment  # noqa: E402
from rich.table import Table as Table  # noqa: E402
from rich.text import Text as Text  # noqa: E402

random.setstate(_GENERATOR)


class Console(rich.console.Console):
    """A rich console that applies the styles of the program, and ignores markup in the text that it prints."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, highlight=False, emoji=False, **options)

    @property  # type: ignore[misc]  # without a setter, which nothing uses
    def file(self) -> IO[str]:
        """The stream below all wrappers: a live display adds one to that of the command line, and rich removes one."""
        stream = super().file
        while (inner := getattr(stream, "rich_proxied_file", None)) is not None:
            stream = inner
        return stream

    def render(self, *arguments: Any, **options: Any) -> Iterable[Segment]:
        for text, style, control in super().render(*arguments, **options):
            # A live display reads the codes in what other code prints, colours and links; a link may lead anywhere.
            yield Segment(text if control else harmless(text), style and style.update_link(None), control)
