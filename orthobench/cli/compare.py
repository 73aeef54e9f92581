"""`orthobench compare`: compare selections of runs, or two databases."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


@filtered()
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
        Literal["end", "final", "best"],
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
    allow. It also gives the share of pairs that one side leads. --task, --model, --tag, --status and --where restrict
    all selections.
    `orthobench ls --help` explains conditions.

    Two databases, such as those of two commits: runs of the same settings are compared, with the versions and
    environments that differ, and the runs that only one database has.
    """
    from orthobench.cli.compare_databases import are_databases, compare_two

    if are_databases(selections):
        compare_two(selections, filters, value, paired, json, csv)
        return
    from orthobench.analysis.compare import adjusted, check_count, contrasts
    from orthobench.cli import records
    from orthobench.errors import UsageError
    from orthobench.store import open_store
    from orthobench.training.locks import status_in

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


def record_of(contrast: Contrast, p: float | None, value: str) -> dict[str, Any]:
    result = contrast.result
    record: dict[str, Any] = {
        "first": contrast.first.text,
        "second": contrast.second.text,
        "runs": [[run.key for run in side.runs] for side in (contrast.first, contrast.second)],
        "settings": contrast.settings,
        "environment": contrast.environment,
        "metric": contrast.metric,
        "value": value,
        "statuses": contrast.counts,
        "medians": [side and {"value": side.value, "interval": [side.low, side.high]} for side in contrast.medians],
        "paired": contrast.paired,
        "caution": contrast.caution or None,
    }
    if result:
        record["result"] = {
            "n": result.n,
            "difference": result.difference.mean if result.difference else None,
            "half_width": result.difference.half_width if result.difference else None,
            "test": result.test,
            "p": result.p,
            "p_holm": p,
            "smallest_p": result.smallest_p,
            "first_lower": result.first_lower,
            "words": result.words or None,
        }
    return record


def _print(contrast: Contrast, p: float | None, value: str) -> None:
    from rich.markup import escape
    from rich.table import Table

    from orthobench.cli.records import console

    out = console()
    table = Table("", escape(contrast.first.text), escape(contrast.second.text), box=None)
    table.add_row("runs", *(", ".join(f"{n} {status}" for status, n in each.items()) for each in contrast.counts))
    table.add_row(f"{contrast.metric}, {value}, median", *("–" if m is None else str(m) for m in contrast.medians))
    for name, (left, right) in (contrast.settings | contrast.environment).items():
        table.add_row(name, escape(left), escape(right))
    out.print(table)
    for line in result_lines(contrast, p, value):
        out.print(line, markup=False, soft_wrap=True)
    out.print()


def result_lines(contrast: Contrast, p: float | None, value: str) -> list[str]:
    """Return the result of a comparison in words."""
    from orthobench.cli.records import cell

    result = contrast.result
    if result is None:
        return ["too few finished or diverged runs to compare: give 6 seeds"]
    pairs = f"{result.n[0]} common seeds" if contrast.paired else f"{result.n[0]} and {result.n[1]} runs, not paired"
    return [
        f"{contrast.metric}, {value}: {pairs}; difference of the means of finished runs "
        + (f"{result.difference} (95 % interval)" if result.difference else "–"),
        f"{result.test}: p = {cell(result.p)}"
        + (f", by Holm over all comparisons {cell(p)}" if p is not None else "")
        + f"; smallest possible p {cell(result.smallest_p)}",
        f"the first is lower in {result.first_lower:.0%} of the pairs of runs; a diverged run is the worst",
        *(text for text in (result.words, contrast.caution) if text),
    ]
