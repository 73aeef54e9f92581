"""Markdown from values: escaped text, tables and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def escape(text: str) -> str:
    """Return text on one line whose characters are no markup, but for code between backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(str(text).split()))
    return "".join(part if number % 2 else _without_markup(part) for number, part in enumerate(parts))


def _without_markup(text: str) -> str:
    """Return text with entities in place of the characters that are markup; Markdown can escape only some of them."""
    return re.sub(r"[\\*_\[\]<>|#&]", lambda match: f"&#{ord(match[0])};", text)


def site_escapes(text: str) -> str:
    """Return Markdown of other programs whose escapes the site's Markdown knows too."""
    return re.sub(r"\\([<|])", lambda match: f"&#{ord(match[1])};", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def fenced(code: str, language: str = "sh") -> str:
    """Return a block of code; unlike indented code it may follow a list."""
    return f"```{language}\n{code}\n```"


def page(*parts: str) -> str:
    """Return the parts, without those that are empty, with a blank line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
