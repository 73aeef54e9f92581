"""Read what the author wrote in a reproduction report (REPRODUCTION.md): the text up to the mark, without the table."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from orthobench.errors import UsageError

ANY_MARK = "<!-- From here on written by .*? -->"
MARK = "<!-- From here on written by `orthobench report --format reproduction`. -->"
TABLE_BEGINS = "<!-- Written by `orthobench report --format reproduction`: everything measured. -->"
TABLE_ENDS = "<!-- Here the author's text begins. -->"
ELSEWHERE = ["link", "image", "autolink", "html_inline", "html_block"]
"""Parts of Markdown that remain text, because the page fetches nothing and runs no foreign markup."""


@dataclass(frozen=True)
class Commentary:
    """The author's text as markup; `remarks` has each list item with the words of its bold lead."""

    text: Markup
    remarks: list[tuple[frozenset[str], Markup]]

    def on(self, claim: str) -> list[Markup]:
        """Return the list items whose bold lead has all words of a claim."""
        words = _words(claim)
        return [remark for lead, remark in self.remarks if words <= lead]


def authors_part(text: str) -> str:
    """Return a reproduction report without what the program wrote: the first table, and everything after the mark."""
    table = f"\n*{re.escape(TABLE_BEGINS)}.*?{re.escape(TABLE_ENDS)}"
    return re.sub(table, "", re.split(ANY_MARK, text)[0], flags=re.S)


def read_commentary(file: Path) -> Commentary:
    """Read the author's part of a reproduction report.

    Raises:
        UsageError: the file cannot be read.
    """
    from markdown_it import MarkdownIt

    try:
        text = authors_part(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"commentary {file} cannot be read ({error}); name a Markdown file with `commentary`"
        ) from error
    parser = MarkdownIt("commonmark", {"html": False}).disable(ELSEWHERE)
    tokens = parser.parse(re.sub(r"(?m)^# .*\n", "", text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
    remarks = []
    for number, token in enumerate(tokens):
        inline = tokens[number + 2] if token.type == "list_item_open" and number + 2 < len(tokens) else None
        if (
            inline is not None
            and inline.type == "inline"
            and (lead := re.match(r"\*\*(.+?)\*\*", inline.content, re.S))
        ):
            remark = Markup(parser.renderer.render(inline.children or [], parser.options, {}))
            remarks.append((_words(lead[1]), remark))
    return Commentary(Markup(parser.renderer.render(tokens, parser.options, {})), remarks)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", text.lower().replace("’", "'")))
