"""Publish databases as a static site with a page for each and an index. GitHub Pages can serve the folder as it is."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import jinja2

from orthobench.errors import UsageError
from orthobench.papers import find_paper
from orthobench.reporting.account.contents import Contents
from orthobench.reporting.account.paper_views import APART
from orthobench.system.files import storage_error, write_bytes
from orthobench.system.kinds import START, refuse_file
from orthobench.system.location import Location
from orthobench.version import __version__

MARK = "orthobench-site.json"
"""The file that marks a folder as a site written by this command."""
OWN = b"<title>orthobench "
"""The beginning of every page's title, by which this command recognises its pages."""
INDEX, NO_JEKYLL = "index.html", ".nojekyll"
_PAGE = re.compile(r"[\w-][\w.-]*\.html")
GROUPS = {
    "agree": "agree",
    "better": "better",
    "worse": "worse",
    "undecided": "undecided",
    **APART,
}
"""Groups of verdicts in the order of the index."""


@dataclass(frozen=True)
class SitePage:
    """A database's page: its name in the site, its text and its contents."""

    name: str
    text: str
    contents: Contents

    @property
    def file(self) -> str:
        """The name of its file."""
        return f"{self.name}.html"


def page_names(locations: Sequence[Location]) -> list[str]:
    """Return a name for each database's page: the file's name without folder and suffix, or the server's database.

    Equal names are numbered in the order of the databases. Names that differ only in case count as equal, because the
    file systems of macOS and Windows do not distinguish them. Names consist of letters, digits, dots and hyphens.
    """
    names: list[str] = []
    taken: set[str] = set()
    for location in locations:
        last = re.split(r"[/\\]", location.real.partition("?")[0].rstrip("/"))[-1]
        stem = last.removesuffix(Path(last).suffix) if not location.is_url or "." in last else last
        base = re.sub(r"[^\w.-]+", "-", stem, flags=re.ASCII).strip("-.") or "results"
        base = f"{base}-results" if base.casefold() == "index" else base
        name, number = base, 2
        while name.casefold() in taken:
            name, number = f"{base}-{number}", number + 1
        names.append(name)
        taken.add(name.casefold())
    return names


def check_folder(folder: Path) -> list[str]:
    """Return the pages that an earlier call wrote to this folder; a file that only the mark calls a page does not
    count.

    Raises:
        UsageError: the path is a file, or a folder with files that this command did not write; it is not changed.
    """
    refuse_file(folder)
    try:
        if not folder.exists() or not any(folder.iterdir()):
            return []
        pages = json.loads((folder / MARK).read_text("utf-8"))["pages"]
        named = [name for name in pages if isinstance(name, str) and _PAGE.fullmatch(name) and name != INDEX]
        return [name for name in named if not _is_foreign(folder / name)]
    except FileNotFoundError:
        raise UsageError(
            f"refusing to write to {folder}: it has files that `orthobench publish` did not write; name another folder"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"{folder / MARK} cannot be read ({error}): name another folder") from error


def _is_foreign(file: Path) -> bool:
    """Return whether a file has content that this command did not write."""
    if not file.is_file():
        return file.exists() or file.is_symlink()
    with file.open("rb") as stream:
        start = stream.read(START)
    return bool(start) and OWN not in start


def _refuse_foreign(folder: Path, names: Sequence[str]) -> None:
    """Refuse to replace pages that this command did not write.

    Raises:
        UsageError: a page of this name was not written by this command; it is not changed.
    """
    for name in names:
        try:
            foreign = _is_foreign(folder / name)
        except OSError as error:
            raise UsageError(f"{folder / name} cannot be read: {error.strerror}: name another folder") from error
        if foreign:
            raise UsageError(
                f"{folder / name} was not written by `orthobench publish`, so it is left as it is: rename it, or name "
                "another folder"
            )


def write_site(folder: Path, pages: Sequence[SitePage]) -> list[Path]:
    """Write or update a site, and return its pages, the index first; pages of omitted databases are removed.

    Each file is replaced atomically.

    Raises:
        UsageError: the folder has other files (see `check_folder`), or a page would replace one of them.
        StorageError: a file cannot be written.
    """
    earlier = check_folder(folder)
    names = [page.file for page in pages]
    _refuse_foreign(folder, [INDEX, *names])
    index = (
        _environment()
        .get_template("index.html.j2")
        .render(
            pages=pages,
            titles={key: find_paper(key).citation for page in pages for key in page.contents.papers},
            groups=GROUPS,
            published_at=datetime.now(UTC),
            version=__version__,
        )
    )
    try:
        folder.mkdir(parents=True, exist_ok=True)
        mark = {"made_by": "orthobench publish", "pages": sorted({*names, *earlier})}
        write_bytes(folder / MARK, json.dumps(mark, indent=1).encode())  # first: an interrupted site stays a site
        # Empty, but needed, because GitHub Pages otherwise passes the folder
        # through Jekyll, which leaves some names out.
        write_bytes(folder / NO_JEKYLL, b"")
        for page in pages:
            write_bytes(folder / page.file, page.text.encode())
        write_bytes(folder / INDEX, index.encode())
        for name in {*earlier} - {*names}:
            (folder / name).unlink(missing_ok=True)
        write_bytes(folder / MARK, json.dumps(mark | {"pages": sorted(names)}, indent=1).encode())
    except OSError as error:
        raise storage_error(error.filename or folder, error) from error
    return [folder / name for name in (INDEX, *names)]


@cache
def _environment() -> jinja2.Environment:
    loader = jinja2.PackageLoader("orthobench", "reporting/web")
    return jinja2.Environment(
        loader=loader, autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
