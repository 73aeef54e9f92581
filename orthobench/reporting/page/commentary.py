"""Render the text of an author's commentary."""

from __future__ import annotations

from markupsafe import Markup

ELSEWHERE = ["image", "autolink", "html_inline", "html_block"]
"""Parts of Markdown that remain text, because the page fetches nothing and runs no foreign markup. Of a link the words
remain."""


def prose(text: str, is_line: bool = False) -> Markup:
    """Render a text in Markdown, with its headings one level lower, because the page has its own first one.

    Args:
        is_line: whether the text is a single line, without a paragraph around it.
    """
    from markdown_it import MarkdownIt  # here, because most pages have no such text

    parser = MarkdownIt("commonmark", {"html": False}).disable(ELSEWHERE)
    for part in ("link_open", "link_close"):
        parser.add_render_rule(part, lambda *_: "")
    if is_line:
        return Markup(parser.renderInline(text))
    tokens = parser.parse(text)
    for token in tokens:
        if token.type in ("heading_open", "heading_close"):
            token.tag = f"h{min(6, int(token.tag[1]) + 1)}"
    return Markup(parser.renderer.render(tokens, parser.options, {}))
