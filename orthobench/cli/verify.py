"""`orthobench verify`: train a stored run again, and compare its numbers with the stored ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    Database,
    DataFolder,
    Json,
    NamedModel,
    PluginFiles,
    Quiet,
)
from orthobench.cli.sessions import displayed
from orthobench.display import print_json
from orthobench.options.arguments import DeviceName
from orthobench.options.assignments import parse_assignments


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="KEY",
            help="The run's key, or its first digits; `orthobench ls` lists them.",
            autocompletion=completion.runs,
        ),
    ],
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "-s", "--set", metavar="NAME=PATH", help="Where a file or folder that a setting names is; may be repeated."
        ),
    ] = None,
    device: Annotated[DeviceName | None, typer.Option("--device", help="Where to compute [as the stored run].")] = None,
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    plugin: PluginFiles = None,
    model: NamedModel = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train a stored run again here, and compare both.

    The run is stored in a temporary database. In the environment of the stored run, all numbers have to be equal
    bit for bit. Elsewhere, the result has to be within the spread of the variant's other seeds. --db may also name
    published runs: hf://ORG/NAME, or a folder.

    Exit code 1: the numbers differ; 2: the run cannot be verified here.
    """
    with displayed(quiet, hint="") as display:
        result = api.verify(
            run,
            db,
            files=parse_assignments(set_ or ()),
            device=device,
            backend=backend,
            plugins=tuple(plugin or ()),
            model=model,
            display=display,
        )
    if json:
        print_json(asdict(result))
    else:
        typer.echo(f"run {result.run}: {result.task} {result.model}, seed {result.seed}")
        values = [f"{name} {_number(value)}" for name, value in (("stored", result.stored), ("here", result.again))]
        typer.echo(f"final {result.metric}: {', '.join(values)}")
        typer.echo(f"{result.equal} of {result.numbers} numbers and vectors are equal")
        if result.first is not None:
            typer.echo(f"the first that is not: {result.first}")
        if result.environment:
            typer.echo(f"the environments differ in {', '.join(sorted(result.environment))}")
        typer.echo(f"{result.outcome}: {result.reason}")
    if result.outcome == "differs":
        raise typer.Exit(1)


def _number(value: float | None) -> str:
    return "-" if value is None else repr(value)
