"""Build Markdown: escaped text, tables and pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence


def escape(text: str) -> str:
    """Join text into one line and escape its markup, except for code between backticks."""
    parts = re.split(r"(`[^`]*`)", " ".join(str(text).split()))
    return "".join(part if number % 2 else _without_markup(part) for number, part in enumerate(parts))


def _without_markup(text: str) -> str:
    """Replace markup characters by entities, because Markdown can escape only some of them."""
    return re.sub(r"[\\*_\[\]<>|#&]", lambda match: f"&#{ord(match[0])};", text)


def site_escapes(text: str) -> str:
    """Convert escapes that the site's Markdown does not support, in Markdown written for other programs."""
    return re.sub(r"\\([<|])", lambda match: f"&#{ord(match[1])};", text)


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Build a table whose cells are Markdown."""
    lines = [f"| {' | '.join(cells)} |" for cells in (header, ["---"] * len(header), *rows)]
    return "\n".join(lines) + "\n"


def renew_tables(text: str, tables: Mapping[str, str]) -> str:
    """Replace what is between `<!-- table: NAME -->` and `<!-- end of table -->` by the table of this name."""
    return re.sub(
        r"(<!-- table: (\S+) -->).*?(<!-- end of table -->)",
        lambda match: f"{match[1]}\n\n{tables[match[2]]}\n{match[3]}",
        text,
        flags=re.S,
    )


def fenced(code: str, language: str = "sh") -> str:
    """Build a block of code, which can follow a list, unlike indented code."""
    return f"```{language}\n{code}\n```"


def page(*parts: str) -> str:
    """Join the parts that are not empty, with a blank line between them."""
    return "\n\n".join(part.strip("\n") for part in parts if part.strip()) + "\n"
