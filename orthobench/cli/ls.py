"""`orthobench ls`: list the runs in the database."""

from __future__ import annotations

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.system.cycles import without_cycle_search

HEADINGS = ("run", "task", "model", "seed", "status", "epochs", "metric", "final", "best", "parameters")


@filtered()
@without_cycle_search()
def command(
    filters: Filters = NO_FILTERS,
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """List the runs in the database. For each task and model, show the settings in which runs differ.

    Filters are the same for ls, compare, report, delete and db export. A condition is KEY=VALUE. The key is task,
    model, seed, preset, status, device, backend, tag, key (the first digits are enough), or any setting, also as n or
    rho. Values that are separated by commas are alternatives: --where model=scornn,lstm. A run must meet all
    conditions. A run has the preset of the command that last started it; preset=none selects runs without one.
    """
    from functools import partial

    from orthobench.analysis.selection import find_runs
    from orthobench.cli import records
    from orthobench.settings.assignments import NoMatchError
    from orthobench.store import open_store
    from orthobench.training.settled import status_in

    selected = filters.conditions()
    with open_store(db) as store:
        status_of = status_in(store, db)
        try:
            runs, remark = find_runs(partial(store.runs, brief=True), selected, status_of), ""
        except NoMatchError as error:
            runs, remark = [], str(error)
        listed = records.run_rows(store, runs, status_of)
    records.echo_log(db)
    if json:
        records.print_json(listed)
    elif not listed:
        empty = f"{db} holds no runs yet. Train one: orthobench run adding scornn --preset quick"
        typer.echo(remark or empty)
    else:
        headings = [
            *HEADINGS,
            *(name for name in ("solved_at", "tags", "weights", "settings") if any(record[name] for record in listed)),
        ]
        records.print_columns(headings, [[records.cell(record[name]) for name in headings] for record in listed])
