"""`orthobench export`: write the model of a run into a file for other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Database,
    DataFolder,
    NamedModel,
    PluginFiles,
    TrainedRun,
    WeightsPlace,
    Which,
)
from orthobench.options.arguments import ExportFormat


def command(
    run: TrainedRun,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file; one of the same kind is replaced.")],
    form: Annotated[
        ExportFormat,
        typer.Option("--format", help="The weights, or the program as ONNX or for torch.export."),
    ],
    weights: Which = None,
    weights_at: WeightsPlace = None,
    steps: Annotated[
        int | None,
        typer.Option("--steps", min=1, metavar="T", help="Fix the program's number of time steps [any number]."),
    ] = None,
    batch: Annotated[
        int | None,
        typer.Option("--batch", min=1, metavar="B", help="Sequences in an input [none: inputs without a batch]."),
    ] = None,
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    plugin: PluginFiles = None,
    model: NamedModel = None,
) -> None:
    """Export a run's model. The file has either the weights alone, or a program that includes them."""
    written = api.export(
        run,
        file,
        form,
        steps=steps,
        batch=batch,
        db=db,
        weights=weights,
        weights_at=weights_at,
        plugins=tuple(plugin or ()),
        model=model,
    )
    typer.echo(f"{'weights' if written.inputs is None else 'program'} written to {file}")
    if written.inputs is not None and written.outputs is not None:
        names = "time" if batch is None else "time, batch"
        if written.tokens:
            kind, meaning = "int64", f"[{names}], numbers of symbols"
        else:
            kind, meaning = "float32", f"[{names}, features], preprocessed as the task does"
        typer.echo(f'its input "inputs" is {kind} {_shape(written.inputs)}: {meaning}')
        typer.echo(f"its output is {_shape(written.outputs)}")
        if written.fixed:
            typer.echo(f"its number of steps is fixed, because torch cannot leave it open here: {written.fixed}")


def _shape(sizes: tuple[int | str, ...]) -> str:
    return f"[{', '.join(map(str, sizes))}]"
