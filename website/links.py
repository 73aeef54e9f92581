"""Links of the documents: relative to the file in a checkout, to pages and copied files on the site.

The site has the pages of `docs/` at its root. Documents outside `docs/` keep their path in the checkout. Other files of
the checkout that a document links to are copied, so that the site needs no network.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath, relpath

ROOT = Path(__file__).resolve().parent.parent
DOCS = "docs"
OUTSIDE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "benchmarks/RESULTS.md",
    "reports/REPRODUCTION.md",
)
"""Documents outside `docs/` that are pages of the site."""
HOME = "README.md"
"""The document that is the site's first page, `index.md`."""
LINK = re.compile(r"(?<=\]\()([^)\s#]+)(#[^)\s]*)?(?=\))")


def documents() -> list[str]:
    """Return the paths of the committed documents of `docs/` on the site."""
    return sorted(path.name for path in (ROOT / DOCS).glob("*.md"))


def for_site(markdown: str, page: str) -> str:
    """Return a document with its links as they are on the site.

    Args:
        page: the document's path on the site.
    """
    return LINK.sub(lambda match: _on_site(match[1], page) + (match[2] or ""), markdown)


def _on_site(target: str, page: str) -> str:
    if "://" in target or target.startswith("mailto:"):
        return target
    path = _in_checkout(target, page)
    if path is None:
        return target
    new = "index.md" if path == HOME else path.removeprefix(f"{DOCS}/")
    return relpath(new, dirname(page) or ".")


def _in_checkout(target: str, page: str) -> str | None:
    """Return the path in the checkout of a file that a document links to; None for a generated page."""
    folder = dirname(page) if page in (*OUTSIDE, "index.md") else f"{DOCS}/{dirname(page)}"
    path = normpath(f"{folder or '.'}/{target}")
    return path if (ROOT / path).is_file() else None


@cache
def linked_files() -> tuple[str, ...]:
    """Return the files of the checkout, neither in `docs/` nor pages, that documents link to."""
    linked = set()
    for page, file in {
        "index.md": ROOT / HOME,
        **{name: ROOT / DOCS / name for name in documents()},
        **{name: ROOT / name for name in OUTSIDE},
    }.items():
        for target, _ in LINK.findall(file.read_text("utf-8")):
            path = None if "://" in target else _in_checkout(target, page)
            if path and not path.startswith(f"{DOCS}/") and path not in (*OUTSIDE, HOME):
                linked.add(path)
    return tuple(sorted(linked))
