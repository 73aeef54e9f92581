"""`orthobench publish`: a static site of one or many databases."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered


@filtered()
def command(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="Folder of the site.")],
    databases: Annotated[
        list[str],
        typer.Argument(metavar="DB...", help="Databases: files or SQLAlchemy URLs."),
    ],
    filters: Filters = NO_FILTERS,
) -> None:
    """Write a static site for GitHub Pages. Each database has a page, and an index lists them.

    The same command renews the site. A folder with other files is left as it is; see docs/publish.md.
    `orthobench ls --help` explains the filters.
    """
    from orthobench import api

    typer.echo("\n".join(map(str, api.publish(folder, databases, where=filters.texts()))))
