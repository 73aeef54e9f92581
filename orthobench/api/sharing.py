"""Share runs: publish them, merge databases, and train a published run again to check its numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Annotated, Any

from orthobench.analysis.selection import select_runs
from orthobench.analysis.verification import Verification
from orthobench.api.results import OneRun
from orthobench.display.display import Display
from orthobench.display.progress import default_display
from orthobench.errors import UsageError
from orthobench.hub.place import Hub, is_hub
from orthobench.hub.publish import Published, opened_runs
from orthobench.hub.publish import publish_runs as add_runs
from orthobench.options.arguments import (
    BackendName,
    Database,
    Databases,
    Device,
    DeviceName,
    File,
    Files,
    Give,
    Model,
    NamedPlace,
    Texts,
)
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import RunOptions
from orthobench.plugins import Catalog
from orthobench.session.verify import train_again
from orthobench.settings.filters import read_conditions
from orthobench.store import Run, open_store
from orthobench.store.merge import Merged, opened_checked, opened_unchanged
from orthobench.store.merge import merge as merge_store
from orthobench.store.open import check_writable
from orthobench.store.sqlite import named_or_default
from orthobench.system.location import Location
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at, is_locked
from orthobench.training.settled import status_in
from orthobench.weights.copy import copy_weights

HubPlace = Annotated[NamedPlace, Give("ORG/NAME, hf://ORG/NAME, or the path of a folder such as ./runs")]


@checked
def publish_runs(hub: HubPlace, db: Database | None = None, *, where: Texts = (), **conditions: Any) -> Published:
    """Add the runs with a result to a data set repository of Hugging Face, or to a folder with the same files.

    Runs that it has already are left as they are, whoever published them.

    Args:
        hub: "ORG/NAME", "hf://ORG/NAME", "file:///FOLDER" or "./FOLDER"; created if it does not exist.
        db: a file or an SQLAlchemy URL; None for the default database.
        where: restrict to runs that meet these conditions, such as ["n=170"].
        conditions: further conditions by name, such as `task="adding"`.

    Raises:
        UsageError: a place cannot be read or written, or no run meets the conditions.
    """
    location, place = named_or_default(db, writes=False), Hub.of(hub)
    with opened_checked(location) as store:
        runs = select_runs(store.runs(), read_conditions(where, **conditions), status_in(store, location))
        if not runs:
            raise UsageError(f"{location} holds no runs to publish: train one with `orthobench run`")
        return add_runs(store, runs, place)


@checked
def merge(databases: Databases, db: Database | None = None) -> list[Merged]:
    """Add the runs of other databases, or published runs, to a database; the others do not change.

    If both databases have a run, the more advanced copy is kept. The files of weights next to the other databases are
    copied; published runs have none.

    Args:
        databases: files, SQLAlchemy URLs, or published runs, "hf://ORG/NAME" or a folder.
        db: the database to merge into; a missing file is created. None for the default database.

    Returns:
        What came from each of them.

    Raises:
        UsageError: one of them cannot be read, is damaged, or is the database to merge into; nothing is merged then.
        StorageError: the database or a file of weights cannot be written.
    """
    sources = list(map(Location.of, databases))
    return [merged for _, merged in merge_each(sources, named_or_default(db, writes=True))]


def merge_each(sources: Sequence[Location], db: Location) -> Iterator[tuple[Location, Merged]]:
    """Merge as `merge` does, and yield each source with what came from it as soon as it is merged."""
    if not sources:
        raise UsageError("there is no database to merge: name at least one")
    for location in sources:
        if not is_hub(location) and location.is_same(db):
            raise UsageError(f"{location} is the database to merge into: name another database as source")
    check_writable(db)
    root = checkpoint_root(db)
    with ExitStack() as opened:
        # Open all sources first, so that one that is wrong or damaged does not leave a half-merged database.
        stores = [
            opened.enter_context(opened_runs(Hub.of(each)) if is_hub(each) else opened_checked(each))
            for each in sources
        ]
        store = opened.enter_context(open_store(db, create=True))
        for location, source in zip(sources, stores, strict=True):
            merged = merge_store(source, store, lambda key: is_locked(store, checkpoints_at(root, key)))
            if not is_hub(location):
                keys = [*merged.added, *merged.replaced]
                merged.copied_weights, merged.missing_weights = copy_weights(location, db, store, keys)
            yield location, merged


@checked
def verify(
    run: OneRun,
    db: Database | None = None,
    *,
    files: Mapping[str, Any] | None = None,
    device: Device | None = None,
    backend: BackendName = "auto",
    plugins: Files = (),
    model: Model | None = None,
    data_folder: File | None = None,
    display: Display | None = None,
) -> Verification:
    """Train a stored run again on this machine, and compare its numbers with the stored ones. Nothing is stored.

    Args:
        run: a record, a key or its first digits.
        db: a database, or a repository or folder of published runs; None for the default database.
        files: the files or folders of this machine that the run's settings name, by the name of the setting.
        device: where to compute; None for the kind of device that trained the run.
        plugins: Python files with the task and model of the run, if these are not built in.
        model: the run's model if it is a layer of another program; only this imports its code, because the record may
            be a stranger's.
        data_folder: the folder of the data sets; None for the usual one.

    Raises:
        UsageError: the run is unknown, has no result, needs other code than this, or cannot start here.
        Stopped: the user stopped the run.
    """
    with ExitStack() as stack:
        stack.enter_context(use_data_folder(data_folder))
        catalog = Catalog(plugins)
        if model is not None:
            catalog.named(model)
        place = named_or_default(db, writes=False)
        store = stack.enter_context(opened_runs(Hub.of(place)) if is_hub(place) else opened_unchanged(place))
        record = store.get(run.key if isinstance(run, Run) else run)
        kind: DeviceName = "cuda" if record.device == "cuda" else "cpu"
        options = RunOptions(
            device=device or kind, backend=backend, data_folder=data_folder, plugins=tuple(plugins), keep_weights="none"
        )
        return train_again(
            store,
            record,
            catalog,
            options,
            {name: str(value) for name, value in (files or {}).items()},
            display or default_display(),
        )
