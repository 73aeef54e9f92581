"""`orthobench tune`: search for good settings of models."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Given,
    MatchParameters,
    PresetName,
    Quiet,
    WrittenDatabase,
    models_option,
    refuse_besides_file,
    split_names,
    with_options,
)
from orthobench.cli.sessions import displayed, report_failures
from orthobench.errors import UsageError
from orthobench.options.assignments import parse_assignments
from orthobench.options.run_options import SweepOptions
from orthobench.options.seeds import TRIALS


@with_options(SweepOptions)
def command(
    task: Annotated[
        str | None, typer.Argument(help="The task; `orthobench plugins` lists them.", autocompletion=completion.tasks)
    ] = None,
    models: Annotated[list[str] | None, models_option("The models, separated by commas; one search each.")] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A TOML file with the search; see docs/train.md."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=A..B",
            help="What to search: ranges KEY=64..256, KEY=1e-4..1e-2:log, or a grid's values; may be repeated.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, metavar="N", help=f"Number of trials in total [the file's, or {TRIALS}]."),
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option("--prune/--no-prune", help="End trials early that are worse than the median [prune]."),
    ] = None,
    set_: Given = None,
    match_parameters: MatchParameters = None,
    preset: PresetName = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Search for good settings.

    Each trial draws its settings based on the results of earlier trials. The same command resumes the search. Needs
    optuna; see docs/train.md.
    """
    names = split_names(models) if models else []
    given: dict[str, Any]
    if file is not None:
        others = task or models or grid or set_ or match_parameters or preset is not None
        refuse_besides_file(others, "--trials and --prune")
        given = api.files.search_in(file, options)
    elif task is None or not names:
        raise UsageError("missing arguments: give a TASK and --models scornn,lstm, or --file search.toml")
    else:
        api.names.check_names(task, names, options.plugins)
        given = {"task": task, "models": names, "match_parameters": match_parameters, "preset": preset}
        given |= {"grid": parse_assignments(grid or ()), "settings": parse_assignments(set_ or ()), "options": options}
    given["trials"] = trials or given.get("trials") or TRIALS
    given["prune"] = given.get("prune") is not False if prune is None else prune
    best_command = partial(api.commands.best_command, data_folder=options.data_folder, db=db)
    with displayed(quiet, plan=dry_run or not quiet, best_command=best_command) as display:
        results = api.tune(**given, db=db, dry_run=dry_run, display=display)
    if not dry_run:
        report_failures(sum(len(result.failed) for result in results), sum(len(result.trials) for result in results))
