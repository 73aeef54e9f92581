"""`orthobench delete`: remove runs from the database."""

from __future__ import annotations

from typing import Annotated

import typer

from orthobench.cli import completion
from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, WeightsPlace, confirm
from orthobench.errors import UsageError, counted


@filtered()
def command(
    runs: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RUN]...", help="Keys of runs, or their first digits.", autocompletion=completion.runs),
    ] = None,
    filters: Filters = NO_FILTERS,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs, and delete nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Delete without asking.")] = False,
    weights_at: WeightsPlace = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Delete runs with all their rows, checkpoints and weights. Name the runs, or give filters that they must meet.

    Weights that are not next to the database stay, unless --weights-at names their place.
    A SQLite database is copied before; `orthobench ls --help` explains the filters.
    """
    from orthobench.analysis.selection import select_runs
    from orthobench.api import open_results
    from orthobench.cli import records
    from orthobench.settings.assignments import NoMatchError
    from orthobench.training.settled import status_in

    selected = filters.conditions()
    if bool(runs) == bool(selected):
        problem = "runs are named by keys and by filters" if runs else "no runs are named"
        raise UsageError(f"{problem}: give either keys, or filters such as --status failed")
    with open_results(db) as results:
        status_of = status_in(results.store, db)
        if runs:
            chosen = [results.store.get(run) for run in dict.fromkeys(runs)]
        else:
            try:
                chosen = select_runs(results.store.runs(), selected, status_of)
            except NoMatchError as error:
                typer.echo(f"{error}: nothing is deleted")
                return
        rows = [run.brief(status_of(run)) for run in chosen]
        headings = ("run", "task", "model", "seed", "status", "epochs", "metric", "final")
        records.print_columns(headings, [[records.cell(row[name]) for name in headings] for row in rows])
        if dry_run:
            typer.echo(f"{counted(len(chosen), 'run')} would be deleted")
            return
        if not yes:
            confirm(f"Delete {counted(len(chosen), 'run')}?")
        copy = results.delete(chosen, weights_at=weights_at)
    typer.echo(f"{counted(len(chosen), 'run')} deleted" + (f"; {copy} is the backup" if copy else ""))
