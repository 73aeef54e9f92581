"""`orthobench run`: train one run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Given,
    Json,
    PresetName,
    Quiet,
    WrittenDatabase,
    refuse_besides_file,
    with_options,
)
from orthobench.cli.records import result_line
from orthobench.cli.sessions import displayed
from orthobench.display import print_json
from orthobench.errors import UsageError
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.assignments import parse_assignments
from orthobench.options.run_options import HOW, RunOptions


@with_options(RunOptions)
def command(
    task: Annotated[
        str | None,
        typer.Argument(
            help="The task; `orthobench plugins` lists them. Or own data: array:data.npz.",
            autocompletion=completion.tasks,
        ),
    ] = None,
    model: Annotated[
        str | None, typer.Argument(help="The model, or a layer: ./cell.py:MyCell.", autocompletion=completion.models)
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A TOML file with the run, instead of TASK and MODEL."),
    ] = None,
    set_: Given = None,
    preset: PresetName = None,
    seed: Annotated[
        int | None,
        typer.Option(
            "--seed",
            min=0,
            max=LARGEST_SEED,
            metavar="N",
            help="Seed of the data, the initial weights and the order of examples [the file's, or 0].",
        ),
    ] = None,
    epochs: Annotated[
        int | None,
        typer.Option(
            "--epochs",
            min=1,
            metavar="N",
            help="Train to this epoch, from the end of a shorter run of the same settings if --keep-weights last "
            "kept its training state.",
        ),
    ] = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: RunOptions,
    force: Annotated[
        bool, typer.Option("--force", help="Delete the run's results and train it again.", rich_help_panel=HOW)
    ] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train one model on one task, as its paper did.

    The same command shows a finished run, and resumes an interrupted one. With --json the result has the form of
    `orthobench show --json`.
    """
    given: dict[str, Any]
    if file is not None:
        refuse_besides_file(task or model or set_ or preset is not None, "--seed and --epochs")
        given = api.files.run_in(file, options)
    elif task is None or model is None:
        raise UsageError("missing arguments: give a TASK and a MODEL, such as adding scornn, or --file run.toml")
    else:
        api.names.check_names(task, [model], options.plugins)
        given = {"task": task, "model": model, "preset": preset, "settings": parse_assignments(set_ or ())}
        given["options"] = options
    if seed is not None:
        given["seed"] = seed
    if epochs is not None:
        given["settings"]["epochs"] = str(epochs)
    with displayed(quiet) as display:
        result = api.run(**given, db=db, force=force, extend=epochs is not None, display=display)
        if json:
            print_json(api.stored.show_run(result.key, db))
        else:
            typer.echo(result_line(result))
