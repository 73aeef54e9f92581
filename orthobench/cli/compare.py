"""`orthobench compare`: compare selections of runs, two databases, or models that it tunes alike."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orthobench.cli import completion
from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Database,
    DryRun,
    Given,
    Json,
    MatchParameters,
    Quiet,
    split_names,
    with_options,
)
from orthobench.errors import UsageError
from orthobench.options.arguments import ComparedValue
from orthobench.options.run_options import SweepOptions
from orthobench.planning import MAX_SEEDS
from orthobench.system.location import Location

if TYPE_CHECKING:
    from orthobench.analysis.compare import Contrast


TRAINING = (
    "device",
    "backend",
    "data_folder",
    "plugins",
    "keep_weights",
    "executor",
    "threads",
    "slurm",
    "jobs",
    "gpu_share",
    "budget",
    "profile",
)
"""The options of a comparison that trains; `--tag` selects runs here."""


@filtered()
@with_options(SweepOptions, *TRAINING)
def command(
    selections: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="SELECTION...",
            help="Two or more selections: the first digits of a run, or conditions such as model=scornn,n=170. "
            "Or two databases: a.db b.db.",
        ),
    ] = None,
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
    protocol: Annotated[
        Literal["tuned"] | None,
        typer.Option(
            "--protocol", help="tuned: train --models with the same search for each, and compare fresh seeds."
        ),
    ] = None,
    tune: Annotated[
        int | None,
        typer.Option("--tune", min=1, metavar="N", help="--protocol tuned with N trials for each model [8]."),
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "--models",
            metavar="A,B",
            help="Tuned: the models, also layers such as ./cell.py:MyCell [all built-in models].",
            autocompletion=completion.model_list,
        ),
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=MAX_SEEDS, help="Tuned: fresh seeds of each search's best settings [5]."),
    ] = None,
    set_: Given = None,
    match_parameters: MatchParameters = None,
    match_state: Annotated[
        int | None,
        typer.Option(
            "--match-state", min=1, metavar="N", help="Tuned: equal state sizes, instead of equal parameter counts."
        ),
    ] = None,
    db: Database = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Of two databases: print a table as CSV.")] = False,
) -> None:
    """Compare selections of runs, two databases, or models that are tuned alike.

    The first selection is compared with each other selection: settings, environment, code and the metric.
    The test is of ranks: a diverged run counts as the worst. Runs are paired by seed where six seeds or more are
    common, because fewer pairs cannot give p below 5 %. The output names the test and the smallest p that these seeds
    allow. It also gives the share of pairs of runs in which the first selection has the lower value. --task, --model,
    --tag, --status and --where restrict all selections. `orthobench ls --help` explains conditions.

    For two databases, for example of two commits, compare runs with the same settings, and list the versions and
    environments that differ and the runs that only one database has.

    With --tune, train first: the same search for the learning rates of each model, judged by validation data. Then
    train fresh seeds of the best settings. --task names columns of the protocol, such as adding or S3. The same command
    goes on where it was interrupted, and --dry-run states the budget; see docs/protocol.md.
    """
    if protocol or tune:
        _tuned(
            selections,
            filters,
            csv,
            tune,
            models,
            seeds,
            set_,
            match_parameters,
            match_state,
            db,
            options,
            dry_run=dry_run,
            quiet=quiet,
            json=json,
        )
        return
    training = {
        "--models": models,
        "--seeds": seeds,
        "-s": set_,
        "--match-parameters": match_parameters,
        "--match-state": match_state,
        "--dry-run": dry_run,
    }
    if given := [flag for flag, value in training.items() if value]:
        raise UsageError(f"{given[0]} is for a comparison that trains: add --tune 8, or leave it out")
    selections = selections or []
    from orthobench.cli.compare_databases import are_databases, compare_two

    if are_databases(selections):
        compare_two(selections, filters, value, paired, json, csv)
        return
    from orthobench.analysis.compare import adjusted, check_count, contrasts
    from orthobench.cli import records
    from orthobench.cli.contrasts import contrast_record
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
        records.print_json([contrast_record(each, p, value) for each, p in zip(compared, p_values, strict=True)])
        return
    for each, p in zip(compared, p_values, strict=True):
        _print(each, p if len(compared) > 1 else None, value)


def _tuned(
    selections: list[str] | None,
    filters: Filters,
    csv: bool,
    tune: int | None,
    models: list[str] | None,
    seeds: int | None,
    settings: list[str] | None,
    match_parameters: str | None,
    match_state: int | None,
    db: Location,
    options: SweepOptions,
    *,
    dry_run: bool,
    quiet: bool,
    json: bool,
) -> None:
    from orthobench.cli.compare_tuned import Asked, compare_tuned
    from orthobench.store.sqlite import default_database

    other = {name for name, value in filters.columns.items() if value is not None and name != "task"}
    other |= {"where"} if filters.where else set()
    if selections or other or csv:
        named = repr(selections[0]) if selections else f"--{min(other)}" if other else "--csv"
        raise UsageError(f"{named} selects stored runs, and --tune trains: name tasks by -t and models by --models")
    tasks = filters.columns.get("task")
    asked = Asked(
        tasks.split(",") if tasks else [],
        split_names(models) if models else [],
        tune,
        seeds,
        settings or [],
        match_parameters,
        match_state,
    )
    place = default_database(writes=True) if db == default_database(writes=False) else db
    compare_tuned(asked, place, options, dry_run=dry_run, quiet=quiet, json=json, print_contrast=_print)


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
