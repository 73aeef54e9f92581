"""`orthobench delete`: remove runs from the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import completion, records
from orthobench.cli.filters import filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, WeightsPlace, confirm
from orthobench.errors import NoMatchError, UsageError, counted


@filtered()
def command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Keys of runs, or their first digits.", autocompletion=completion.runs),
    ] = None,
    where: Sequence[str] = (),
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    weights_at: WeightsPlace = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Delete runs with their checkpoints and weights. Name the runs, or give filters that they must meet.

    Weights that are not next to the database stay, unless --weights-at names their place.
    A SQLite database is copied before; `orthobench ls --help` explains the filters.
    """
    if bool(runs) == bool(where):
        problem = "runs are named by keys and by filters" if runs else "no runs are named"
        raise UsageError(f"{problem}: give either keys, or filters such as --status failed")
    try:
        listed = api.stored.list_runs(db, where, runs or ())
    except NoMatchError as error:
        typer.echo(f"{error}: nothing is deleted")
        return
    records.print_runs(listed)
    if dry_run:
        typer.echo(f"{counted(len(listed), 'run')} would be deleted")
        return
    if not yes:
        confirm(f"Delete {counted(len(listed), 'run')}?")
    with api.open_results(db) as results:
        copy = results.delete([row["run"] for row in listed], weights_at=weights_at)
    typer.echo(f"{counted(len(listed), 'run')} deleted" + (f"; {copy} is the backup" if copy else ""))
