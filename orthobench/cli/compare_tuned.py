"""`orthobench compare-tuned`: tune models alike, and print the budget, or the results and their comparison."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Given,
    Json,
    MatchParameters,
    Quiet,
    WrittenDatabase,
    models_option,
    split_names,
    with_options,
)
from orthobench.cli.outcomes import contrast_record, needed_seeds, print_contrasts
from orthobench.cli.records import NAME, TEXT, cell, console, print_table, show_duration
from orthobench.cli.sessions import LEFT_TO_ANOTHER, displayed, report_failures
from orthobench.display import print_json
from orthobench.errors import shell_command
from orthobench.options.assignments import parse_assignments
from orthobench.options.run_options import SweepOptions
from orthobench.options.seeds import MAX_SEEDS


@with_options(SweepOptions)
def command(
    tasks: Annotated[
        list[str] | None,
        typer.Option(
            "-t",
            "--task",
            metavar="A,B",
            help="Columns of the protocol, such as adding or S3, tasks, or own data as array:data.npz [all columns].",
            autocompletion=completion.tasks,
        ),
    ] = None,
    models: Annotated[
        list[str] | None, models_option("The models, also layers such as ./cell.py:MyCell [all built-in models].")
    ] = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=MAX_SEEDS, help="Fresh seeds of each search's best settings [3]."),
    ] = None,
    set_: Given = None,
    match_parameters: MatchParameters = None,
    match_state: Annotated[
        int | None,
        typer.Option("--match-state", min=1, metavar="N", help="Equal state sizes, instead of equal parameter counts."),
    ] = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Tune models alike, and compare them.

    Train the same search for the learning rates of each model, judged by validation data. Then train fresh seeds of the
    best settings, and compare the first model with each other one, as `orthobench compare` does. The same command goes
    on where it was interrupted, and --dry-run states the budget; see docs/comparison.md.
    """
    names = split_names(models) if models else []
    if not names and not quiet:  # at once, because planning all models takes a while
        where = "" if tasks else " and columns"
        typer.echo(
            f"all built-in models{where}: several hours of CPU time for each column. Ctrl-C stops, and the same "
            "command goes on. --models and -t name fewer, and --dry-run states the time.",
            err=True,
        )
    api.names.check_names(None, names, options.plugins)
    with displayed(quiet, plan=False) as display:
        columns = api.compare_tuned(
            split_names(tasks, "--task adding,S3") if tasks else [],
            names,
            seeds=seeds,
            settings=parse_assignments(set_ or []),
            match_parameters=match_parameters,
            match_state=match_state,
            db=db,
            options=options,
            dry_run=dry_run,
            display=display,
        )
    if json:
        print_json(
            [_record(column, [contrast_record(each, "end") for each in column.contrasts()]) for column in columns]
        )
    elif dry_run:
        _print_budget(columns)
    else:
        for column in columns:
            _print_column(column)
            if compared := column.contrasts():
                needed = needed_seeds(compared)
                is_more = column.is_complete and needed is not None and needed > column.seeds
                advice = [f"the same command with --seeds {needed} can decide more"] if is_more else []
                print_contrasts(compared, "end", advice)
            _print_command(column, db)
    if dry_run:
        return
    report_failures(
        sum(len(column.failed) for column in columns),
        sum(model.entry.first + column.seeds for column in columns for model in column.models),
        sum(column.refused for column in columns),
    )
    if any(column.busy for column in columns):
        typer.echo("some runs are left to another process: the same command later shows their results", err=True)
        raise typer.Exit(LEFT_TO_ANOTHER)
    if not all(column.is_complete for column in columns):
        typer.echo("the comparison is not complete: the same command goes on", err=True)


def _record(column: api.TunedColumn, comparisons: list[dict[str, Any]]) -> dict[str, Any]:
    rows = []
    for model, row in zip(column.models, column.records(), strict=True):
        cost = {} if model.cost is None else {"cost": vars(model.cost)}
        rows.append({**row, "chosen": model.chosen, "runs": [run.key for run in model.runs], **cost})
    return {
        "column": column.column.name,
        "task": column.column.task,
        "metric": column.metric,
        "complete": column.is_complete,
        "models": rows,
        "comparisons": comparisons,
    }


def _print_budget(columns: Sequence[api.TunedColumn]) -> None:
    """Print for each model and column what it costs, and the totals."""
    out, total, unknown = console(), 0.0, 0  # seconds, and searches without an estimate, of all columns
    for column in columns:
        out.print(_heading(column))
        rows, seconds, missing = [], 0.0, 0
        for model in column.models:
            row, cost = model.record(), model.cost
            assert cost is not None
            time = "0s" if not cost.left else "?" if cost.seconds is None else f"~ {show_duration(cost.seconds)}"
            missing += cost.left > 0 and cost.seconds is None
            seconds += cost.seconds or 0.0
            counts = (f"{cost.search:,}", f"{cost.fresh:,}", f"{cost.left:,}")
            rows.append((model.word, cell(row["hidden_size"]), _parameters(model), cell(row["state"]), *counts, time))
        headings = ("model", "hidden_size", "parameters", "state", "search", "seeds", "left", "time")
        optional = ("search", "seeds", "hidden_size", "parameters", "state")
        print_table(headings, rows, optional, folds={"model": NAME})
        out.print(f"iterations of the search and of the seeds; {_time_left(seconds, missing)}\n")
        total, unknown = total + seconds, unknown + missing
    if len(columns) > 1:
        out.print(f"all columns: {_time_left(total, unknown)}")


def _time_left(seconds: float, unknown: int) -> str:
    """Describe the time that is left, without searches of unknown time, of which the number is given."""
    if not seconds:
        return "unknown time left" if unknown else "nothing left"
    words = f"about {show_duration(seconds)} left on one core"
    return f"{words}, without {unknown} of unknown time" if unknown else words


def _heading(column: api.TunedColumn) -> str:
    first = column.models[0].entry
    return f"{column.column.title}: {first.iterations:,} iterations, a search and {column.seeds} fresh seeds a model"


def _parameters(model: api.TunedModel) -> str:
    """Return the parameter count, with its distance from the target if no size of the model is near."""
    size, matched = model.size, model.size.matched
    return f"{size.parameters}" + ("" if matched is None or matched.is_near else f" ({matched.deviation:+.0%})")


def _print_column(column: api.TunedColumn) -> None:
    """Print the results of a column, in the order in which the models were named."""
    out = console()
    out.print(_heading(column))
    median, others = f"test {column.metric}, median", ("lowest", "highest")
    rows = [
        (
            model.word,
            *(cell(row[name]) for name in ("median", *others)),
            cell(row["seeds"]) if row["seeds"] >= column.seeds else f"{row['seeds']} of {column.seeds}",
            row["chosen"] or "-",
            _parameters(model),
            cell(row["state"]),
        )
        for model, row in zip(column.models, column.records(), strict=True)
    ]
    headings = ("model", median, *others, "seeds", "chosen", "parameters", "state")
    print_table(headings, rows, ("seeds", "chosen", *others, "parameters", "state"), {"model": NAME, "chosen": TEXT})
    for edge in ("highest", "lowest"):
        if at_edge := [model.word for model in column.models if model.search.edge == edge]:
            out.print(f"{', '.join(at_edge)}: with the {edge} rate of the search, beyond which a better one may be")
    out.print()


def _print_command(column: api.TunedColumn, db: api.Location) -> None:
    """Print the command that compares the same runs again."""
    words = api.names.database_words(db, writes=False)
    models = [model for model in column.models if model.runs]
    if len(models) > 1:
        seeds = ",".join(map(str, sorted({run.seed for model in models for run in model.runs})))
        variants = [f"variant={model.runs[0].variant}" for model in models]
        typer.echo(f"again: {shell_command('compare', *variants, '--where', f'seed={seeds}', *words)}\n")
