"""Add the generated pages and the documents outside `docs/` to the site, and adapt the links between them."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:  # mkdocs runs this file by its path
    sys.path.insert(0, str(ROOT))

from workshop.website import figures, links, pages, results  # noqa: E402
from workshop.website.markdown import site_escapes  # noqa: E402

ASSETS = ROOT / "workshop" / "website" / "assets"
MANUAL = "Manual"
BOOSTS = {"start.md": 8, "python.md": 4}
"""How much the search prefers pages that people ask for by a common word. All written pages precede generated ones."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Complete the navigation with folders of generated pages and with documents that `mkdocs.yml` does not name."""
    nav: list[Any] = _expand(config.nav or [], pages.generated())
    named = _paths(nav)
    new = [name for name in links.documents() if name not in named]
    for section in nav:
        if isinstance(section, dict) and MANUAL in section:
            section[MANUAL] += new
    config.nav = nav
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the generated pages, the documents outside `docs/`, the files that documents link to, and the assets."""
    for path, content in (pages.generated() | figures.pictures()).items():
        files.append(File.generated(config, path, content=content))
    for name in (*links.OUTSIDE, *links.linked_files()):
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    page = results.reference_page()
    files.append(File.generated(config, str(page.relative_to(ROOT)), abs_src_path=str(page)))
    files.append(File.generated(config, "index.md", abs_src_path=str(ROOT / links.HOME)))
    for asset in sorted(ASSETS.iterdir()):
        files.append(File.generated(config, f"assets/{asset.name}", abs_src_path=str(asset)))
    return files


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Adapt the links of a document, which work in a checkout, so that they work on the site."""
    page.meta["search"] = {"boost": BOOSTS.get(page.file.src_uri, 2 if page.file.src_uri in links.documents() else 1)}
    if page.file.src_uri == "index.md":
        page.meta["hide"] = ["navigation"]
    return links.for_site(site_escapes(markdown), page.file.src_uri)


def on_post_template(output_content: str, template_name: str, config: MkDocsConfig) -> str:
    """Make the links of 404.html relative if SITE_URL is not known, so that they also work below a path.

    They then hold for missing pages in the folder of the start page, where most documents are.
    """
    if template_name != "404.html" or config.site_url:
        return output_content
    return re.sub(r'(="|"base": "|"search": "|new URL\(")/', r"\1./", output_content)


def _expand(nav: list[Any], generated: dict[str, str]) -> list[Any]:
    """Replace the name of a folder in the navigation, such as `models/`, by the generated pages in the folder."""
    entries: list[Any] = []
    for entry in nav:
        if isinstance(entry, dict):
            ((title, value),) = entry.items()
            if isinstance(value, list):
                value = _expand(value, generated)
            elif value.endswith("/"):
                value = [_entry(path) for path in generated if path.startswith(value)]
            entry = {title: value}
        entries.append(entry)
    return entries


def _entry(path: str) -> Any:
    """Return the navigation entry of a generated page; a paper is listed by its key, because its title is long."""
    name = Path(path).stem
    return {name: path} if path.startswith("papers/") and name != "index" else path


def _paths(nav: list[Any]) -> set[str]:
    """Return the paths in a navigation."""
    paths: set[str] = set()
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        paths |= _paths(value) if isinstance(value, list) else {value}
    return paths
