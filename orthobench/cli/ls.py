"""`orthobench ls`: list the runs in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import records
from orthobench.cli.filters import filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.display import print_json
from orthobench.errors import NoMatchError

FURTHER = ("at_best_validation", "solved_at", "tags", "weights", "settings")


@filtered()
def command(
    where: Sequence[str] = (),
    last: Annotated[
        int | None, typer.Option("-n", "--last", min=1, metavar="N", help="The N newest runs only.")
    ] = None,
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """List the runs in the database. For each task and model, show the settings in which runs differ.

    Filters are the same for ls, compare, report, delete and db export. A condition is KEY=VALUE. The key is task,
    model, seed, preset, status, device, backend, tag, key (the first digits are enough), or any setting, also as n or
    rho. Values that are separated by commas are alternatives: --where model=scornn,lstm. A run must meet all
    conditions. A run has the preset of the command that last started it; preset=none selects runs without one.
    """
    try:
        listed, remark = api.stored.list_runs(db, where)[-(last or 0) :], ""
    except NoMatchError as error:
        listed, remark = [], str(error)
    records.echo_log(db)
    if json:
        print_json(listed)
    elif not listed:
        empty = f"{db} holds no runs yet. Train one: orthobench run adding scornn --preset quick"
        typer.echo(remark or empty)
    else:
        records.print_runs(listed, [name for name in FURTHER if any(record[name] for record in listed)])
