"""`orthobench sweep`: train the runs of a grid or a sweep file, each once."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Given,
    Json,
    MatchParameters,
    PresetName,
    Quiet,
    WrittenDatabase,
    models_option,
    refuse_besides_file,
    split_names,
    with_options,
)
from orthobench.cli.records import print_summary
from orthobench.cli.serve import live_page
from orthobench.cli.sessions import displayed, report_sweep
from orthobench.display import print_json
from orthobench.errors import UsageError, shell_command
from orthobench.options.arguments import LARGEST_SEED, PORT
from orthobench.options.assignments import parse_assignments
from orthobench.options.run_options import WHERE, SweepOptions
from orthobench.options.seeds import parse_seeds


def _print_schema(requested: bool) -> None:
    if requested:
        typer.echo(api.descriptions.sweep_schema())
        raise typer.Exit


@with_options(SweepOptions)
def command(
    task: Annotated[
        str | None, typer.Argument(help="The task; `orthobench plugins` lists them.", autocompletion=completion.tasks)
    ] = None,
    models: Annotated[list[str] | None, models_option("The models, separated by commas.")] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            metavar="FILE",
            help="A TOML file with the sweep, instead of TASK; see docs/train.md.",
        ),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2",
            help="Values to combine, also KEY=128..512:x2, 1..9:+2, '(K1,K2)=(1,2),(3,4)'; may be repeated.",
        ),
    ] = None,
    set_: Given = None,
    seeds: Annotated[
        str | None,
        typer.Option(
            "--seeds",
            metavar="N|A-B",
            help="Number of seeds, 0, 1, 2, ..., or the seeds, as 3-5 or 0,3-5 [the file's, or 1].",
        ),
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            "--first-seed",
            min=0,
            max=LARGEST_SEED,
            metavar="N",
            help="First of the number of seeds [0].",
        ),
    ] = None,
    match_parameters: MatchParameters = None,
    preset: PresetName = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
    serve: Annotated[
        bool,
        typer.Option(
            "--serve",
            help="Serve the live page while the runs train; see `orthobench serve`.",
            rich_help_panel=WHERE,
        ),
    ] = False,
    port: Annotated[
        int | None,
        typer.Option(
            "--port",
            min=0,
            max=65535,
            metavar="N",
            help=f"With --serve: port on 127.0.0.1; 0: a free one [{PORT} if it is free].",
            rich_help_panel=WHERE,
        ),
    ] = None,
    schema: Annotated[
        bool,
        typer.Option(
            "--schema",
            callback=_print_schema,
            is_eager=True,
            help="Print the files' JSON schema.",
        ),
    ] = False,
) -> None:
    """Train the runs of a grid or a sweep file, each once.

    The same command trains those that are missing. See also `orthobench tune` and `orthobench reproduce`.
    With --json the result has the form of `orthobench ls --json`; with --dry-run it has the planned runs.
    Exit code 1: runs failed; 3: another process trains runs of the sweep and has not finished them.
    """
    names = split_names(models) if models else []
    api.names.check_names(task, names, options.plugins)
    if port is not None and not serve:
        raise UsageError("--port is for the live page: add --serve, or leave it out")
    chosen = None if seeds is None and first_seed is None else parse_seeds(seeds or "1", first_seed)
    axes, settings = parse_assignments(grid or ()), parse_assignments(set_ or ())
    with (
        displayed(quiet, plan=not json and (dry_run or not quiet)) as display,
        live_page(db, port) if serve and not dry_run else nullcontext(),
    ):
        if file is not None:
            refuse_besides_file(task or models or grid or set_ or match_parameters or preset is not None, "--seeds")
            result = api.sweep_file(file, seeds=chosen, db=db, options=options, dry_run=dry_run, display=display)
        else:
            if task is None or not models:
                raise UsageError("missing arguments: give a TASK and --models scornn,lstm, or --file sweep.toml")
            result = api.sweep(
                task,
                names,
                seeds=chosen or 1,
                grid=axes,
                settings=settings,
                match_parameters=match_parameters,
                preset=preset,
                db=db,
                options=options,
                dry_run=dry_run,
                display=display,
            )
    if json:
        print_json(api.stored.list_sweep(result, db, dry_run))
    elif not dry_run:
        print_summary(api.sweeps.summarize(result.runs, db))
    if result.runs and not (json or dry_run or quiet):
        words = api.names.database_words(db, writes=False)
        typer.echo(f"the page: {shell_command('report', '--html', *words)}")
        typer.echo(f"more seeds: the same command with --seeds {api.sweeps.more_seeds(result.runs)}")
    if not dry_run:
        report_sweep(result)
