"""Read an author's text about the reproduction, and render it.

The text is a file of its own with placeholders for facts, or what an author wrote in a report (REPRODUCTION.md): the
part up to the mark, without the tables.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from markupsafe import Markup

from orthobench.errors import UsageError
from orthobench.reporting.page.facts import Facts, fill_in

ANY_MARK = "<!-- From here on written by .*? -->"
MARK = "<!-- From here on written by `orthobench report --format reproduction`. -->"
TABLE_BEGINS = "<!-- Written by `orthobench report --format reproduction`: everything measured. -->"
TABLE_ENDS = "<!-- Here the author's text begins. -->"
ELSEWHERE = ["image", "autolink", "html_inline", "html_block"]
"""Parts of Markdown that remain text, because the page fetches nothing and runs no foreign markup. Of a link the words
remain."""


@dataclass(frozen=True)
class Commentary:
    """The author's text as markup; `remarks` has each remark with the words of its claim.

    A remark is one that the text makes by a placeholder; in a text without such ones, it is a list item with a bold
    lead.
    """

    text: Markup
    remarks: list[tuple[frozenset[str], Markup]]

    def on(self, claim: str) -> list[Markup]:
        """Return the remarks whose lead has all words of a claim."""
        words = _words(claim)
        return [remark for lead, remark in self.remarks if words <= lead]


def authors_part(text: str) -> str:
    """Return a reproduction report without what the program wrote: the first table, and everything after the mark."""
    table = f"\n*{re.escape(TABLE_BEGINS)}.*?{re.escape(TABLE_ENDS)}"
    return re.sub(table, "", re.split(ANY_MARK, text)[0], flags=re.S)


def read_source(file: Path) -> str:
    """Read an author's text, with its placeholders.

    Raises:
        UsageError: the file cannot be read.
    """
    try:
        return authors_part(file.read_text("utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(
            f"commentary {file} cannot be read ({error}); name a Markdown file with `commentary`"
        ) from error


def render(source: str, facts: Facts, name: str) -> Commentary:
    """Fill in the placeholders of an author's text in Markdown, and render it.

    Args:
        name: what the text is called in errors.

    Raises:
        UsageError: a placeholder cannot be filled in.
    """
    from markdown_it import MarkdownIt

    text = fill_in(source, facts, name)
    parser = MarkdownIt("commonmark", {"html": False}).disable(ELSEWHERE)
    for part in ("link_open", "link_close"):
        parser.add_render_rule(part, lambda *_: "")
    tokens = parser.parse(re.sub(r"(?m)^# .*\n", "", text))
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            # One level lower, because the page has its own heading of the first level.
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
    if facts.remarked:
        remarks = [(_words(fact.text), Markup(parser.renderInline(remark))) for fact, remark in facts.remarked]
    return Commentary(Markup(parser.renderer.render(tokens, parser.options, {})), remarks)


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"[\w'-]+", text.lower().replace("’", "'")))
