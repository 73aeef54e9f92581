"""`orthobench publish`: a static site of databases, or their runs for others to merge and verify."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli.filters import filtered
from orthobench.errors import UsageError, counted


@filtered()
def command(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DIR] DB...",
            help="Folder of the site, and databases: files or SQLAlchemy URLs. With --hub, databases alone.",
        ),
    ] = None,
    hub: Annotated[
        str | None,
        typer.Option(
            "--hub",
            metavar="ORG/NAME",
            help="Instead of a site, add the runs to this data set repository of Hugging Face; or to a folder, "
            "./FOLDER.",
        ),
    ] = None,
    where: Sequence[str] = (),
) -> None:
    """Write a site of databases, or publish runs (--hub).

    The site has a page for each database and an index, for GitHub Pages. The same command renews the site, and adds
    new runs to a repository. A folder with other files is left as it is; see docs/publish.md. `orthobench ls
    --help` explains the filters.
    """
    words = words or []
    if hub is None:
        if len(words) < 2:
            missing = "a folder and a database" if not words else "a database"
            raise UsageError(f"name {missing}, such as orthobench publish site results.db")
        typer.echo("\n".join(map(str, api.publish(Path(words[0]), words[1:], where=where))))
        return
    databases: list[str | None] = [*words] or [None]
    for database in databases:
        done = api.publish_runs(hub, database, where=where)
        left = f", {len(done.without_result)} without a result" if done.without_result else ""
        typer.echo(f"{hub}: {counted(len(done.added), 'run')} added, {len(done.known)} known{left}")
        if done.sources:
            typer.echo(f"{hub}: with the source code of {', '.join(done.sources)}")
