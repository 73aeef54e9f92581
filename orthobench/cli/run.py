"""`orthobench run`: train one run."""

from __future__ import annotations

from typing import Annotated

import typer

from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Given,
    Json,
    PresetName,
    Quiet,
    WrittenDatabase,
    check_names,
    with_options,
)
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.run_options import RunOptions


@with_options(RunOptions)
def command(
    task: Annotated[
        str, typer.Argument(help="The task; `orthobench plugins` lists them.", autocompletion=completion.tasks)
    ],
    model: Annotated[str, typer.Argument(help="The model.", autocompletion=completion.models)],
    set_: Given = None,
    preset: PresetName = "paper",
    seed: Annotated[
        int,
        typer.Option(
            "--seed",
            min=0,
            max=LARGEST_SEED,
            help="Seed of the data, the initial weights and the order of examples.",
        ),
    ] = 0,
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
    force: Annotated[bool, typer.Option("--force", help="Delete the run's results and train it again.")] = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train one model on one task, as its paper did.

    The same command shows a finished run, and resumes an interrupted one. With --json the result has the form of
    `orthobench show --json`.
    """
    check_names(task, [model], options.plugins)

    from orthobench.settings.assignments import parse_assignments

    settings = parse_assignments([*(set_ or ()), *([] if epochs is None else [f"epochs={epochs}"])])
    from orthobench.api.runs import run
    from orthobench.cli.records import print_json, result_line
    from orthobench.cli.session_display import TerminalDisplay, resumable

    with resumable(TerminalDisplay(quiet)) as display:
        result = run(
            task,
            model,
            preset=preset,
            seed=seed,
            db=db,
            force=force,
            extend=epochs is not None,
            settings=settings,
            options=options,
            display=display,
        )
        if not json:
            typer.echo(result_line(result))
            return
        from orthobench.cli.show import run_record
        from orthobench.store import open_store

        with open_store(db) as store:
            print_json(run_record(store, db, store.get(result.key)))
