"""`orthobench compare --tune N`: print the budget, the results and the comparison of models that are tuned alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import typer

from orthobench.system.location import Location

if TYPE_CHECKING:
    from orthobench.options.run_options import SweepOptions
    from orthobench.session.tuned_session import TunedColumn, TunedModel


@dataclass(frozen=True)
class Asked:
    """What the user asked for, as `api.compare_tuned` takes it."""

    tasks: Sequence[str]
    models: Sequence[str]
    tune: int | None
    seeds: int | None
    settings: Sequence[str]
    match_parameters: str | None
    match_state: int | None


def compare_tuned(
    asked: Asked,
    db: Location,
    options: SweepOptions,
    *,
    dry_run: bool,
    quiet: bool,
    json: bool,
) -> None:
    """Train a tuned comparison and print it; in a dry run, print what it costs.

    Raises:
        typer.Exit: runs failed, are left to another process, or were stopped.
    """
    from orthobench import api
    from orthobench.cli.options import check_names
    from orthobench.cli.outcomes import contrast_record, print_contrasts
    from orthobench.cli.records import print_json
    from orthobench.cli.session_display import LEFT_TO_ANOTHER, TerminalDisplay, report_failures, resumable
    from orthobench.settings.assignments import parse_assignments

    check_names(None, asked.models, options.plugins)
    with resumable(TerminalDisplay(quiet, plan=False)) as display:
        columns = api.compare_tuned(
            list(asked.tasks),
            list(asked.models),
            tune=asked.tune,
            seeds=asked.seeds,
            settings=parse_assignments(asked.settings),
            match_parameters=asked.match_parameters,
            match_state=asked.match_state,
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
                print_contrasts(compared, "end", db)
            _print_command(column, db)
    if dry_run:
        return
    report_failures(
        sum(len(column.failed) for column in columns),
        sum(len(model.entry.trials) + column.seeds for column in columns for model in column.models),
        sum(column.refused for column in columns),
    )
    if any(column.busy for column in columns):
        typer.echo("some runs are left to another process: the same command later shows their results", err=True)
        raise typer.Exit(LEFT_TO_ANOTHER)
    if not all(column.is_complete for column in columns):
        typer.echo("the comparison is not complete: the same command goes on", err=True)


def _record(column: TunedColumn, comparisons: list[dict[str, Any]]) -> dict[str, Any]:
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


def _print_budget(columns: Sequence[TunedColumn]) -> None:
    """Print for each model and column what it costs, and the totals."""
    from rich.table import Table

    from orthobench.cli.records import cell, console
    from orthobench.planning.budget import show_duration

    out, total, unknown = console(), 0.0, 0
    for column in columns:
        first = column.models[0]
        out.print(_heading(column), soft_wrap=True)
        table = Table("model", "hidden_size", "parameters", "state", "search", "seeds", "left", "time", box=None)
        seconds = 0.0
        for model in column.models:
            row, cost = model.record(), model.cost
            assert cost is not None
            time = "0s" if not cost.left else "?" if cost.seconds is None else f"~ {show_duration(cost.seconds)}"
            unknown += cost.left > 0 and cost.seconds is None
            seconds += cost.seconds or 0.0
            counts = (f"{cost.search:,}", f"{cost.fresh:,}", f"{cost.left:,}")
            table.add_row(model.word, cell(row["hidden_size"]), _parameters(model), cell(row["state"]), *counts, time)
        out.print(table)
        trials = len(first.entry.trials)
        out.print(
            f"iterations of {trials} trials and {column.seeds} seeds; about {seconds / 3600:.1f} core-hours left\n",
            soft_wrap=True,
        )
        total += seconds
    words = f", and {unknown} searches without an estimate" if unknown else ""
    if len(columns) > 1 or words:
        out.print(f"all columns: about {total / 3600:.1f} core-hours left{words}", soft_wrap=True)


def _heading(column: TunedColumn) -> str:
    first = column.models[0].entry
    return (
        f"{column.column.title}: {len(first.trials)} trials of {first.iterations:,} iterations, halved twice, and "
        f"{column.seeds} fresh seeds for each model"
    )


def _parameters(model: TunedModel) -> str:
    """Return the parameter count, with its distance from the target if no size of the model is near."""
    from orthobench.planning.match import TOLERANCE

    size = model.entry.size
    is_off = size is not None and abs(size.deviation) > TOLERANCE
    return f"{model.entry.parameters}" + (f" ({size.deviation:+.0%})" if is_off and size is not None else "")


def _print_column(column: TunedColumn) -> None:
    """Print the results of a column, in the order in which the models were named."""
    from rich.table import Table

    from orthobench.cli.records import cell, console

    out = console()
    out.print(_heading(column), soft_wrap=True)
    table = Table(
        "model",
        "parameters",
        "state",
        "chosen",
        "seeds",
        f"test {column.metric}, median",
        "lowest",
        "highest",
        box=None,
    )
    for model, row in zip(column.models, column.records(), strict=True):
        numbers = [cell(row[name]) for name in ("median", "lowest", "highest")]
        table.add_row(
            model.word,
            _parameters(model),
            cell(row["state"]),
            row["chosen"] or "-",
            f"{row['seeds']} of {column.seeds}",
            *numbers,
        )
    out.print(table)
    for edge in ("highest", "lowest"):
        if names := [model.word for model in column.models if model.edge == edge]:
            out.print(f"{', '.join(names)}: with the {edge} rate of the search, beyond which a better one may be")
    out.print()


def _print_command(column: TunedColumn, db: Location) -> None:
    """Print the command that compares the same runs again."""
    from orthobench.errors import shell_command
    from orthobench.store.sqlite import database_words

    words = database_words(db, writes=False)
    models = [model for model in column.models if model.runs]
    if len(models) > 1:
        seeds = ",".join(str(run.seed) for run in models[0].runs)
        variants = [f"variant={model.runs[0].variant}" for model in models]
        typer.echo(f"again: {shell_command('compare', *variants, '--where', f'seed={seeds}', *words)}\n")
