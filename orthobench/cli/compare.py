"""`orthobench compare`: compare selections of runs, or two databases."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.options.arguments import ComparedValue
from orthobench.system.cycles import without_cycle_search

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast
    from orthobench.system.location import Location


@filtered()
@without_cycle_search()
def command(
    selections: Annotated[
        list[str],
        typer.Argument(
            metavar="SELECTION...",
            help="Two or more selections: the first digits of a run, or conditions such as model=scornn,n=170. "
            "Or two databases: a.db b.db.",
        ),
    ],
    value: Annotated[
        ComparedValue,
        typer.Option(
            "--value", help="Compare the median of the last tenth of the tests (end), the last test, or the best."
        ),
    ] = "end",
    paired: Annotated[
        bool | None,
        typer.Option(
            "--paired/--unpaired",
            help="Pair the runs by seed, or do not. By default six common seeds or more are paired.",
            show_default=False,
        ),
    ] = None,
    filters: Filters = NO_FILTERS,
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Of two databases: print a table as CSV.")] = False,
) -> None:
    """Compare selections of runs, or two databases.

    The first selection is compared with each other selection: settings, environment, code and the metric.
    The test is of ranks: a diverged run counts as the worst. Runs are paired by seed where six seeds or more are
    common, because fewer pairs cannot give p below 5 %. The output names the test, the smallest p that these seeds
    allow, and the share of pairs of runs in which the first selection has the lower value. The verdict is "tested
    apart" at 5 % over all comparisons; clearly better or worse in every seed, if the seeds are too few for a test; or
    "overlaps". Where too few seeds leave it open, commands follow that train as many as would decide.

    --task, --model, --tag, --status and --where restrict all selections. `orthobench ls --help` explains conditions.

    For two databases, for example of two commits, compare runs with the same settings, and list the versions and
    environments that differ and the runs that only one database has.
    """
    from orthobench.cli.compare_databases import are_databases, compare_two

    if are_databases(selections):
        compare_two(selections, filters, value, paired, json, csv)
        return
    from orthobench.analysis.compare import check_count, contrasts
    from orthobench.cli import outcomes, records
    from orthobench.errors import UsageError
    from orthobench.store import open_store
    from orthobench.training.settled import status_in

    check_count(selections)
    if csv:
        raise UsageError("--csv is for two databases: give --json, or name two databases")
    shared = filters.conditions()
    with open_store(db) as store:
        compared = contrasts(store, selections, shared, status_in(store, db), value, paired)
    if json:
        records.print_json([outcomes.contrast_record(each, value) for each in compared])
        return
    out = records.console()
    for each in compared:
        names = (each.first.text, each.second.text)
        outcomes.print_contrast(each, "", names, value, several=len(compared) > 1)
        out.print()
    out.print(outcomes.table([outcomes.of_contrast(each, ("first", "second")) for each in compared]))
    for line in _more_seeds(compared, db):
        out.print(line, soft_wrap=True)


def _more_seeds(contrasts: Sequence[Contrast], db: Location) -> list[str]:
    """Return the commands that add the seeds which would decide; a selection of several variants has none."""
    from orthobench.cli.show import command_of

    place = "" if db == DEFAULT_DATABASE else f" --db {shlex.quote(str(db))}"
    commands = {
        side.text: f"  {command_of(db, side.runs[0], contrast.deciding)}{place}"
        for contrast in contrasts
        for side in (contrast.first, contrast.second)
        if contrast.deciding is not None and len({run.variant for run in side.runs}) == 1
    }
    needed = next((contrast.deciding for contrast in contrasts if contrast.deciding is not None), None)
    return [f"train {needed} seeds of each:", *commands.values()] if commands else []
