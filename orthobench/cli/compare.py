"""`orthobench compare`: compare selections of runs, or two databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.options.arguments import ComparedValue
from orthobench.system.cycles import without_cycle_search

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


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
    common, because fewer pairs cannot give p below 5 %. The output names the test and the smallest p that these seeds
    allow. It also gives the share of pairs of runs in which the first selection has the lower value. --task, --model,
    --tag, --status and --where restrict all selections. `orthobench ls --help` explains conditions.

    For two databases, for example of two commits, compare runs with the same settings, and list the versions and
    environments that differ and the runs that only one database has.
    """
    from orthobench.cli.compare_databases import are_databases, compare_two

    if are_databases(selections):
        compare_two(selections, filters, value, paired, json, csv)
        return
    from orthobench.analysis.compare import adjusted, check_count, contrasts
    from orthobench.cli import records
    from orthobench.cli.contrasts import record_of
    from orthobench.errors import UsageError
    from orthobench.store import open_store
    from orthobench.training.settled import status_in

    check_count(selections)
    if csv:
        raise UsageError("--csv is for two databases: give --json, or name two databases")
    shared = filters.conditions()
    with open_store(db) as store:
        compared = contrasts(store, selections, shared, status_in(store, db), value, paired)
    p_values = adjusted(compared)
    if json:
        records.print_json([record_of(each, p, value) for each, p in zip(compared, p_values, strict=True)])
        return
    for each, p in zip(compared, p_values, strict=True):
        _print(each, p if len(compared) > 1 else None, value)


def _print(contrast: Contrast, p: float | None, value: str) -> None:
    from rich.table import Table

    from orthobench.cli.contrasts import result_lines, shown
    from orthobench.cli.records import console

    out = console()
    table = Table("", contrast.first.text, contrast.second.text, box=None)
    table.add_row("runs", *(", ".join(f"{n} {status}" for status, n in each.items()) for each in contrast.counts))
    table.add_row(f"{contrast.metric}, {value}, median", *("–" if m is None else str(m) for m in contrast.medians))
    for name, (left, right) in (contrast.settings | contrast.environment).items():
        table.add_row(name, shown(left), shown(right))
    out.print(table)
    for line in result_lines(contrast, p, value):
        out.print(line, soft_wrap=True)
    out.print()
