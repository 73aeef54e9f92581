"""Publish runs: add those that a repository or folder does not have yet, and read all that it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from orthobench.errors import UsageError, counted
from orthobench.hub.card import NAME, card
from orthobench.hub.place import Hub, is_hub
from orthobench.hub.shards import RUNS_OF_A_SHARD, SHARD, Loader, pack_shard, rows_of, unpack_shard
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.merge import opened_unchanged
from orthobench.system.location import Place


@dataclass(frozen=True)
class Published:
    """The result of a publication: the keys of the runs, and the files that were added.

    Attributes:
        added: runs that the place did not have.
        known: runs that it had; their files stay as they are.
        without_result: runs that have not ended, or failed, and are left out.
        sources: the files of plugins whose source code the added runs bring with them.
    """

    added: list[str]
    known: list[str]
    without_result: list[str]
    files: list[str]
    sources: list[str]


def publish_runs(store: Store, runs: Sequence[Run], hub: Hub) -> Published:
    """Add the runs with a result that a place does not have. Nothing of what it has changes.

    Raises:
        UsageError: the place cannot be read or written, or a run has a value that no reader would accept.
    """
    exists = hub.exists
    present = keys_at(hub) if exists else set()
    final = [run for run in runs if Status(run.status).is_final]
    new = [run for run in final if run.key not in present]
    files: dict[str, bytes] = {}
    plugins: set[str] = set()
    for start in range(0, len(new), RUNS_OF_A_SHARD):
        rows = rows_of(store, new[start : start + RUNS_OF_A_SHARD])
        files |= pack_shard(rows)
        plugins |= {
            name for row in rows["environments"] for each in row["facts"].get("plugins", ()) for name in each["files"]
        }
    if files:
        if not (exists and hub.has(NAME)):
            files = {NAME: card().encode(), **files}
        hub.add(files, f"Add {counted(len(new), 'run')}")
    return Published(
        [run.key for run in new],
        [run.key for run in final if run.key in present],
        [run.key for run in runs if run not in final],
        list(files),
        sorted(plugins),
    )


def keys_at(hub: Hub) -> set[str]:
    """Return the keys of the runs at a place.

    Raises:
        UsageError: the place cannot be read, or is damaged.
    """
    keys: set[str] = set()
    for shard in _shards(hub):
        for _, rows in unpack_shard(shard, _content(hub, shard), hub.name, ["runs"]):
            keys |= {row["key"] for row in rows}
    return keys


def _shards(hub: Hub) -> list[str]:
    """Return the names of the shards at a place, in a fixed order.

    Raises:
        UsageError: the place cannot be read, or one of its files has another name.
    """
    names = sorted(hub.names("runs"))
    for name in names:
        if not SHARD.fullmatch(name):
            raise UsageError(f"{hub.name} is damaged: runs/{name[:60]!r} is not the name of a shard")
    return [name.removesuffix(".parquet") for name in names]


def _content(hub: Hub, shard: str) -> Callable[[str], bytes]:
    return lambda table: hub.read(table, f"{shard}.parquet")


@contextmanager
def opened_runs(place: Place) -> Iterator[Store]:
    """Open a database as `opened_unchanged` does, or the runs of a repository or folder as a temporary database.

    Raises:
        UsageError: the place cannot be read, has no runs, or is damaged.
    """
    if not is_hub(place):
        with opened_unchanged(place) as store:
            yield store
        return
    hub = Hub.of(place)
    if not hub.exists:
        raise UsageError(f"{hub.name} does not exist, or your token may not read it: check the name, and $HF_TOKEN")
    shards = _shards(hub)
    if not shards:
        raise UsageError(f"{hub.name} has no runs: `orthobench publish --hub` writes them")
    with TemporaryDirectory(prefix="orthobench-") as folder, open_store(Path(folder) / "runs.db", create=True) as store:
        connection = store.engine.connect().execution_options(writes=True)
        with connection, connection.begin():
            loader = Loader(connection)
            for shard in shards:
                loader.add(shard, hub.name, unpack_shard(shard, _content(hub, shard), hub.name))
            loader.check(hub.name)
        yield store
