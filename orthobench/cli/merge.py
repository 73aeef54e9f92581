"""`orthobench merge`, also `orthobench db merge`: add the runs of other databases, or published runs, to a database."""

from __future__ import annotations

from typing import Annotated

import typer

from orthobench import api
from orthobench.cli.options import DEFAULT_DATABASE, WrittenDatabase
from orthobench.errors import counted


def command(
    sources: Annotated[
        list[api.Location],
        typer.Argument(
            metavar="FROM...",
            parser=api.Location.of,
            help="Databases to read: files or SQLAlchemy URLs. Or published runs: hf://ORG/NAME, or a folder.",
        ),
    ],
    db: WrittenDatabase = DEFAULT_DATABASE,
) -> None:
    """Add the runs of other databases, or published runs.

    The other databases do not change. Each run is added once. If both databases have a run, the more advanced copy is
    kept. Finished copies come first, then diverged ones, then those with more iterations, then the copy in this
    database. The files of weights next to the other databases are copied; published runs have none.
    """
    for location, merged in api.sharing.merge_each(sources, db):
        rows = ", ".join(f"{count} {name}" for name, count in merged.rows.items() if count)
        typer.echo(
            f"{location}: {counted(len(merged.added), 'run')} added to {db}, {len(merged.replaced)} replaced by "
            f"one that got further, {len(merged.unchanged)} known" + (f"; rows: {rows}" if rows else "")
        )
        if merged.copied_weights or merged.missing_weights:
            typer.echo(f"{location}: {copied_weights(merged.copied_weights, merged.missing_weights)}")


def copied_weights(copied: int, missing: int) -> str:
    """Return how many files of weights were copied, and how many could not be."""
    lost = f", {missing} are missing or were changed, and are not copied" if missing else ""
    return f"{counted(copied, 'file')} of weights copied{lost}"
