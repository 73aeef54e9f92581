"""`orthobench evaluate`: test the kept weights of a run again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import records
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    Database,
    DataFolder,
    Device,
    Given,
    Json,
    NamedModel,
    PluginFiles,
    TrainedRun,
    WeightsPlace,
    Which,
)
from orthobench.display import print_json
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.assignments import parse_assignments, text


def command(
    run: TrainedRun,
    set_: Given = None,
    seed: Annotated[
        int | None, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Seed of the data [the run's].")
    ] = None,
    weights: Which = None,
    weights_at: WeightsPlace = None,
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    plugin: PluginFiles = None,
    model: NamedModel = None,
    json: Json = False,
) -> None:
    """Test the kept weights of a run again. The values are shown next to the stored ones.

    -s and --seed choose other data of the run's task, such as longer sequences.
    """
    result = api.evaluate(
        run,
        parse_assignments(set_ or ()),
        seed=seed,
        db=db,
        weights=weights,
        weights_at=weights_at,
        device=device,
        backend=backend,
        plugins=tuple(plugin or ()),
        model=model,
    )
    if json:
        print_json(asdict(result))
        return
    data = " ".join(f"{name}={text(value)}" for name, value in result.changed.items()) or "the run's data"
    typer.echo(
        f"run {result.run}: {result.task} {result.model}, {result.weights} weights of iteration "
        f"{result.iteration}, on {data}"
    )
    headings = ("split", "metric", "value", "stored", "baseline")
    rows = [
        [metric.split, metric.name, *map(_number, (metric.value, metric.stored, metric.baseline))]
        for metric in result.metrics
    ]
    records.print_table(headings, rows)
    if result.by_length is not None and result.trained_lengths is not None:
        shortest, longest = result.trained_lengths
        typer.echo(f"\n{result.length_metric} over length, trained on {shortest} to {longest}")
        shown = records.some_lengths(result.by_length, result.trained_lengths)
        records.print_table(("length", "value"), [[str(n), _number(result.by_length[n])] for n in shown])


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:.6g}"
