"""Convert the links in documents: in a checkout they are relative to the file, on the site they lead to pages.

The pages of `docs/` are at the root of the site. Documents outside `docs/` keep their path in the checkout. Other files
of the checkout to which a document links are copied to the site, so that it needs no network.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from posixpath import dirname, normpath, relpath

ROOT = Path(__file__).resolve().parents[2]
DOCS = "docs"
OUTSIDE = (
    "ARCHITECTURE.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "workshop/benchmarks/RESULTS.md",
    "workshop/benchmarks/RESULTS_CUDA.md",
    "reports/REPRODUCTION.md",
)
"""The documents outside `docs/` that become pages of the site."""
HOME = "README.md"
"""The document that becomes the first page of the site, `index.md`."""
LINK = re.compile(r"""(?:(?<=\]\()|(?<= src=")|(?<= srcset="))([^)"\s#]+)(#[^)"\s]*)?(?=[)"\s])""")
"""The target of a link or picture, in Markdown or in HTML."""


def documents() -> list[str]:
    """Return the site paths of the committed documents in `docs/`."""
    return sorted(path.name for path in (ROOT / DOCS).glob("*.md"))


def for_site(markdown: str, page: str) -> str:
    """Convert the links of a document to links on the site.

    Args:
        page: the path of the document on the site.
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
    """Return the path in the checkout of a file to which a document links; None for a generated page."""
    folder = dirname(page) if page in (*OUTSIDE, "index.md") else f"{DOCS}/{dirname(page)}"
    path = normpath(f"{folder or '.'}/{target}")
    return path if (ROOT / path).is_file() else None


@cache
def linked_files() -> tuple[str, ...]:
    """Return the files of the checkout to which documents link and which are neither in `docs/` nor pages."""
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
