"""`orthobench run`: one run."""

from __future__ import annotations

from typing import Annotated

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    LARGEST_SEED,
    Backend,
    CheckpointEvery,
    CheckpointPlace,
    Database,
    DataFolder,
    Device,
    Given,
    OnDivergence,
    PluginFiles,
    PresetName,
    Tags,
    checkpoint_root,
)


def command(
    task: Annotated[str, typer.Argument(help="The task; `orthobench plugins` lists them.")],
    model: Annotated[str, typer.Argument(help="The model.")],
    set_: Given = None,
    preset: PresetName = "paper",
    seed: Annotated[int, typer.Option("--seed", min=0, max=LARGEST_SEED, help="Seed of data, start and order.")] = 0,
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    plugin: PluginFiles = None,
    tag: Tags = None,
    checkpoints: CheckpointPlace = None,
    checkpoint_every: CheckpointEvery = 30.0,
    on_divergence: OnDivergence = "stop",
    force: Annotated[bool, typer.Option("--force", help="Train again what is finished, replacing it.")] = False,
) -> None:
    """Train one model on one task, as its paper did.

    Asked for again, a finished run is only shown, and one that was cut off goes on where it was.
    """
    from orthobench.settings import parse_assignments

    given = parse_assignments(set_ or ())
    from orthobench.execution import session as training
    from orthobench.plugins import Catalog
    from orthobench.spec import resolve
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.training.checkpoint import checkpoints_at
    from orthobench.training.lifecycle import check_backend, pick_device
    from orthobench.training.locks import lock
    from orthobench.training.loop import Interrupted

    config = resolve(Catalog(plugin or ()), task, model, given, preset, seed)
    where = pick_device(device)
    check_backend(backend, where)
    check_writable(db)
    place = checkpoint_root(db, checkpoints)
    with open_store(db, create=True) as store, training.stop_on_signals() as stop:
        if force and (before := store.find(config.spec.key)):
            folder = checkpoints_at(place, before.key)
            with lock(store, folder):
                store.delete(before.id)
                folder.clear()
        session = training.Session(
            store, db, where, backend, checkpoint_every, stop, plugin or (), on_divergence, checkpoints, tag or ()
        )
        try:
            finished = session.train(config, f"{task} {model}")
        except Interrupted:
            typer.echo("stopped; the same command goes on from here", err=True)
            raise typer.Exit(130) from None
    typer.echo(training.describe(finished))
