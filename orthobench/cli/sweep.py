"""`orthobench sweep`: the runs of a grid, each once."""

from __future__ import annotations

from contextlib import nullcontext
from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    CheckpointEvery,
    Database,
    Device,
    Given,
    PluginFiles,
    PresetName,
    checkpoint_root,
)

if TYPE_CHECKING:
    from orthobench.store import Store
    from orthobench.sweep.plan import PlannedRun
    from orthobench.variants import Variant


def command(
    task: Annotated[str, typer.Argument(help="The task; `orthobench plugins` lists them.")],
    models: Annotated[str, typer.Option("--models", metavar="A,B", help="The models, separated by commas.")],
    grid: Annotated[
        list[str] | None, typer.Option("--grid", metavar="KEY=V1,V2", help="Values to combine; may be repeated.")
    ] = None,
    set_: Given = None,
    seeds: Annotated[int, typer.Option("--seeds", min=1, help="How many seeds: 0, 1, 2, ...")] = 1,
    preset: PresetName = "paper",
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    plugin: PluginFiles = None,
    checkpoint_every: CheckpointEvery = 30.0,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and start none.")] = False,
) -> None:
    """Train the runs of a grid, each once; again, what is missing."""
    from orthobench.errors import UsageError
    from orthobench.settings import parse_assignments
    from orthobench.sweep.grid import parse_grid

    points, given = parse_grid(grid or ()), parse_assignments(set_ or ())
    names = [name.strip() for name in models.split(",")]
    if not all(names):
        raise UsageError(f"--models '{models}' has an empty name: write --models scornn,lstm")

    from orthobench.cli import training
    from orthobench.plugins import Catalog
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.sweep.plan import plan, resolve_all
    from orthobench.train import Interrupted, check_backend, pick_device
    from orthobench.variants import variants

    runs = resolve_all(Catalog(plugin or ()), task, names, given, points, range(seeds), preset)
    where = pick_device(device)
    check_backend(backend, where)
    checkpoints = checkpoint_root(db)
    if dry_run:
        with _existing(db) or nullcontext() as store:
            _print_plan(plan(runs, store, checkpoints))
        return
    check_writable(db)
    with open_store(db, create=True) as store, training.stop_on_signals() as stop:
        planned = plan(runs, store, checkpoints)
        _print_plan(planned)
        session = training.Session(store, checkpoints, where, backend, checkpoint_every, stop)
        wanted = sum(one.is_wanted for one in planned)
        try:
            failed = wanted - len(list(training.train_all(session, planned, _label)))
        except Interrupted:
            typer.echo("stopped; the same command goes on from here", err=True)
            raise typer.Exit(130) from None
        _print_summary(variants(store.runs(keys=[resolved.spec.key for resolved, _ in runs])))
    if failed:
        typer.echo(f"{failed} of {len(runs)} runs failed: `orthobench ls --status failed` lists them", err=True)
        raise typer.Exit(1)


def _label(one: PlannedRun) -> str:
    return one.resolved.spec.model + "".join(f" {key}={value}" for key, value in one.chosen.items())


def _existing(db: str) -> Store | None:
    from orthobench.store import open_store
    from orthobench.store.open import sqlite_file

    file = sqlite_file(db)
    return None if file is not None and not file.exists() else open_store(db)


def _print_plan(planned: list[PlannedRun]) -> None:
    from rich.table import Table

    from orthobench.cli.records import console

    table = Table("run", "model", "settings", "seed", "state", box=None)
    for one in planned:
        spec = one.resolved.spec
        settings = " ".join(f"{key}={value}" for key, value in one.chosen.items())
        table.add_row(spec.key, spec.model, settings, str(spec.seed), one.state)
    console().print(table)
    states = [one.state for one in planned]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))


def _print_summary(rows: list[Variant]) -> None:
    from rich.table import Table

    from orthobench.cli.records import cell, console

    headings = ("model", "seeds", "metric", "final (mean ± 95 %)", "best", "diverged", "parameters", "s/epoch")
    table = Table(*headings, box=None)
    for row in rows:
        table.add_row(
            row.label,
            f"{len(row.finished)} of {len(row.runs)}",
            row.run.metric,
            cell(row.final and str(row.final)),
            cell(row.best and str(row.best)),
            str(row.diverged),
            str(row.run.parameter_count),
            cell(row.seconds_per_epoch and row.seconds_per_epoch.mean),
        )
    console().print(table)
