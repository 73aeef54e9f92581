"""`orthobench compare`: compare selections of runs, two databases, or models that it tunes alike."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Annotated, Literal

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
    given_or_default,
    split_names,
    with_options,
)
from orthobench.errors import UsageError
from orthobench.options.arguments import ComparedValue
from orthobench.options.run_options import SweepOptions
from orthobench.planning import MAX_SEEDS
from orthobench.system.cycles import without_cycle_search
from orthobench.system.location import Location

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
SEARCH = {"protocol", "tune", "models", "seeds", "set_", "match_parameters", "match_state", "dry_run", *TRAINING}
"""The parameters that only a comparison that trains reads."""


@filtered()
@with_options(SweepOptions, *TRAINING)
def command(
    context: typer.Context,
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
            help="Pair the runs by seed, or do not. By default they are paired where a test can use that.",
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
    csv: Annotated[
        bool, typer.Option("--csv", help="Of two databases: print a table as CSV; first_n and second_n count runs.")
    ] = False,
) -> None:
    """Compare runs, databases, or models that are tuned alike.

    The first selection is compared with each other selection: settings, environment, code and the metric.
    The test is of ranks: a diverged run counts as the worst. Runs are paired by seed where six seeds or more are
    common, or more for several comparisons, because fewer pairs cannot give p below 5 %. The output names the test, the
    smallest p that these seeds allow, and the share of pairs of runs in which the first selection has the lower value.
    The verdict is "tested apart" at 5 % over all comparisons; clearly better or worse in every seed, if the seeds are
    too few for a test; or "overlaps". Where too few seeds leave it open, commands follow that train as
    many as would decide.

    --task, --model, --tag, --status and --where restrict all selections. `orthobench ls --help` explains conditions.

    For two databases, for example of two commits, compare runs with the same settings, and list the versions and
    environments that differ and the runs that only one database has.

    With --tune, train first: the same search for the learning rates of each model, judged by validation data. Then
    train fresh seeds of the best settings. --task names columns of the protocol, such as adding or S3. The same command
    goes on where it was interrupted, and --dry-run states the budget; see docs/protocol.md.
    """
    if protocol or tune:
        from orthobench.cli.compare_tuned import Asked, compare_tuned

        filters_but_task = {name for name in context.params if name.startswith("filter_")} - {"filter_task"}
        _refuse_given(
            context,
            {"selections", "value", "paired", "csv", *filters_but_task},
            "is for stored runs, and --tune trains: name tasks by -t and models by --models",
        )
        tasks = filters.columns.get("task")
        asked = Asked(
            tasks.split(",") if tasks else [],
            split_names(models) if models else [],
            tune,
            seeds,
            set_ or [],
            match_parameters,
            match_state,
        )
        place = given_or_default(context, "db", db, writes=True)  # because --db was read as that of stored runs
        compare_tuned(asked, place, options, dry_run=dry_run, quiet=quiet, json=json)
        return
    _refuse_given(context, SEARCH, "is for a comparison that trains: add --tune 8, or leave it out")
    _stored(context, selections or [], filters, value, paired, db, json=json, csv=csv)


@without_cycle_search()
def _stored(
    context: typer.Context,
    selections: Sequence[str],
    filters: Filters,
    value: ComparedValue,
    paired: bool | None,
    db: Location,
    *,
    json: bool,
    csv: bool,
) -> None:
    """Compare stored runs, or two databases."""
    from orthobench.cli.compare_databases import are_databases, compare_two

    if are_databases(selections):
        _refuse_given(context, {"db"}, "names one database, and the words name two: leave it out")
        compare_two(selections, filters, value, paired, json, csv)
        return
    from orthobench.analysis.compare import check_count, contrasts
    from orthobench.cli import outcomes, records
    from orthobench.store import open_store
    from orthobench.training.settled import status_in

    _refuse_given(context, {"csv"}, "is for two databases: give --json, or name two databases")
    check_count(selections)
    shared = filters.conditions()
    with open_store(db) as store:
        compared = contrasts(store, selections, shared, status_in(store, db), value, paired)
    if json:
        records.print_json([outcomes.contrast_record(each, value) for each in compared])
        return
    outcomes.print_contrasts(compared, value, db)


def _refuse_given(context: typer.Context, names: Collection[str], why: str) -> None:
    """Refuse the first of these parameters that the user has given, because it would have no effect.

    Raises:
        UsageError: one of them is on the command line.
    """
    for parameter in context.command.params:
        name = str(parameter.name)
        source, value = context.get_parameter_source(name), context.params.get(name)
        if name not in names or source is None or source.name != "COMMANDLINE":
            continue
        flags = parameter.secondary_opts if value is False else parameter.opts
        is_argument = parameter.param_type_name == "argument"
        shown = f"the selection {next(iter(value or ()))!r}" if is_argument else max(flags, key=len)
        raise UsageError(f"{shown} {why}")
