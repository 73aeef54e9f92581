"""`orthobench merge`, also `orthobench db merge`: add the runs of other databases, or published runs, to a database."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Annotated

import typer

from orthobench.cli.options import DEFAULT_DATABASE, WrittenDatabase
from orthobench.errors import UsageError, counted
from orthobench.system.location import Location


def command(
    sources: Annotated[
        list[Location],
        typer.Argument(
            metavar="FROM...",
            parser=Location.of,
            help="Databases to read: files or SQLAlchemy URLs. Or published runs: hf://ORG/NAME, or a folder.",
        ),
    ],
    db: WrittenDatabase = DEFAULT_DATABASE,
) -> None:
    """Add the runs of other databases, or published runs.

    The other databases do not change. Each run is added once. If both databases have a run, the more advanced copy is
    kept. Finished copies come first, then diverged ones, then those with more iterations, then the copy in this
    database. The files of weights next to the other databases are copied; published runs have none.
    """
    from orthobench.hub.place import is_hub
    from orthobench.hub.publish import opened_runs
    from orthobench.store import open_store
    from orthobench.store.damage import refuse
    from orthobench.store.merge import merge as merge_store
    from orthobench.store.open import check_writable
    from orthobench.training.checkpoint import checkpoint_root, checkpoints_at, is_locked
    from orthobench.weights.copy import copy_weights

    for location in sources:
        if not is_hub(location) and location.is_same(db):
            raise UsageError(f"{location} is the database to merge into: name another database as source")
    check_writable(db)
    root = checkpoint_root(db)
    with ExitStack() as opened:
        # Open all sources first, so that a wrong name at the end does not leave a half-merged database.
        stores = [opened.enter_context(opened_runs(location)) for location in sources]
        for source in stores:
            refuse(source.engine)
        store = opened.enter_context(open_store(db, create=True))
        for location, source in zip(sources, stores, strict=True):
            result = merge_store(source, store, lambda key: is_locked(store, checkpoints_at(root, key)))
            rows = ", ".join(f"{count} {name}" for name, count in result.rows.items() if count)
            typer.echo(
                f"{location}: {counted(len(result.added), 'run')} added to {db}, {len(result.replaced)} replaced by "
                f"one that got further, {len(result.unchanged)} known" + (f"; rows: {rows}" if rows else "")
            )
            if is_hub(location):
                continue
            copied, missing = copy_weights(location, db, store, [*result.added, *result.replaced])
            if copied or missing:
                typer.echo(f"{location}: {copied_weights(copied, missing)}")


def copied_weights(copied: int, missing: int) -> str:
    """Return how many files of weights were copied, and how many could not be."""
    lost = f", {missing} are missing or were changed, and are not copied" if missing else ""
    return f"{counted(copied, 'file')} of weights copied{lost}"
