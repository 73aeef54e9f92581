"""Publish runs: add those that a repository or folder does not have yet, and read all that it has.

A publication is an SQLite file of runs, named by the hash of its content, so it never changes, and publishers do not
overwrite each other's files. It may be a stranger's: it is read as data, and every row is checked before any is used.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import delete, select, update

from orthobench.errors import DamagedError, UsageError, counted, without_folders
from orthobench.hub.card import CARD, NAME
from orthobench.hub.place import MOST_BYTES, Hub
from orthobench.settings import without_paths
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.merge import merge, opened_checked
from orthobench.store.sqlite import connect, problem_of
from orthobench.store.tables import Environment, Segment, Series, Source, StoredMetric

FILE = re.compile(r"[0-9a-f]{64}\.db")
"""The name of a published file."""
RUNS_OF_A_FILE = 200
"""The most runs of a file: some megabytes, so that a changed run replaces little, and downloads are few."""


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
        UsageError: the place cannot be read or written, or its files or the runs are too large.
        DamagedError: the place is damaged.
    """
    exists = hub.exists
    present = {key for name in _names(hub) for key in _keys(hub, name)} if exists else set()
    final = [run for run in runs if Status(run.status).is_final]
    new = [run.key for run in final if run.key not in present]
    files: dict[str, bytes] = {}
    plugins: set[str] = set()
    for start in range(0, len(new), RUNS_OF_A_FILE):
        content, names = _packed(store, new[start : start + RUNS_OF_A_FILE])
        files[f"runs/{_digest(content)}.db"] = content
        plugins |= names
    if files:
        if not exists or NAME not in hub.names(""):
            files = {NAME: CARD.encode(), **files}
        hub.add(files, f"Add {counted(len(new), 'run')}")
    return Published(
        new,
        [run.key for run in final if run.key in present],
        [run.key for run in runs if run not in final],
        list(files),
        sorted(plugins),
    )


def _packed(store: Store, keys: Sequence[str]) -> tuple[bytes, set[str]]:
    """Return the content of a file with these runs, and the names of the files of plugins in it.

    Raises:
        UsageError: it would be larger than what is read.
    """
    with TemporaryDirectory(prefix="orthobench-") as folder:
        part, file = Path(folder) / "part.db", Path(folder) / "runs.db"
        with open_store(part, create=True) as target:
            merge(store, target, keys=keys)
            names = _leave_out(target)
        with connect(part) as connection:
            connection.execute("VACUUM INTO ?", (str(file),))  # without the content of what was left out
        content = file.read_bytes()
    if len(content) > MOST_BYTES:
        raise UsageError(f"{len(keys)} runs have {len(content)} bytes, more than {MOST_BYTES}: publish fewer at a time")
    return content, names


def _leave_out(target: Store) -> set[str]:
    """Remove from a database of runs what others do not need or should not see.

    These are the paths of this machine, and the environments, series and sources of other runs.

    Returns:
        The names of the files of plugins that stay.
    """
    names: dict[str, str] = {}  # by the hash of the content
    with target.engine.connect().execution_options(writes=True) as connection, connection.begin():
        used = select(Run.environment_id).union(select(Segment.environment_id))
        connection.execute(delete(Environment).where(Environment.id.not_in(used)))
        connection.execute(delete(Series).where(Series.id.not_in(select(StoredMetric.series_id))))
        for number, facts in connection.execute(select(Environment.id, Environment.facts)).all():
            shown = Environment(facts=facts).facts_for_others
            connection.execute(update(Environment).where(Environment.id == number).values(facts=shown))
            for plugin in shown.get("plugins", ()):
                names |= {digest: name for name, digest in plugin["files"].items()}
        connection.execute(delete(Source).where(Source.digest.not_in(names)))
        connection.execute(update(Segment).values(write_token=None))
        for number, spec, message, changed in connection.execute(
            select(Run.id, Run.spec, Run.message, Run.updated_at)
        ).all():
            values = {"spec": without_paths(spec), "write_token": None, "updated_at": changed}
            values["message"] = message and " ".join(without_folders(message).split())
            connection.execute(update(Run).where(Run.id == number).values(values))
    return set(names.values())


def _names(hub: Hub) -> list[str]:
    """Return the names of the files at a place, in a fixed order.

    Raises:
        DamagedError: one of its files has another name.
    """
    names = sorted(hub.names("runs"))
    for name in names:
        if not FILE.fullmatch(name):
            raise DamagedError(f"{hub.name} is damaged: runs/{name[:60]!r} is not the name of a file of runs")
    return names


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def _keys(hub: Hub, name: str) -> list[str]:
    with _opened(hub, name) as store:
        return [row.key for row in store.stamps()]


@contextmanager
def _opened(hub: Hub, name: str) -> Iterator[Store]:
    """Open a published file after the check of all that it holds.

    Raises:
        UsageError: it is too large, or was written by a newer orthobench.
        DamagedError: it was changed, or has what no run of orthobench has.
    """
    content, where = hub.read("runs", name), f"{hub.name} is damaged: runs/{name}"
    if _digest(content) != name.removesuffix(".db"):
        raise DamagedError(f"{where} is not what its name says, because it was changed")
    with TemporaryDirectory(prefix="orthobench-") as folder:
        file = Path(folder) / name
        file.write_bytes(content)
        try:
            with opened_checked(file) as store:
                for run in store.runs():
                    if without_paths(run.spec) != run.spec:
                        raise DamagedError(f"{where}: a setting of run {run.key} is a path of another machine")
                yield store
        except DamagedError as error:
            problem = str(error) if str(error).startswith(where) else f"{where}: {problem_of(error)}"
            raise DamagedError(problem.replace(str(file), "it")) from error
        except UsageError as error:
            raise UsageError(str(error).replace(str(file), f"{hub.name}: runs/{name}")) from error


@contextmanager
def opened_runs(hub: Hub) -> Iterator[Store]:
    """Open the runs of a repository or folder as a temporary database.

    Of two copies of a run there, the more advanced one counts, and else the first.

    Raises:
        UsageError: the place cannot be read, or has no runs.
        DamagedError: it is damaged.
    """
    if not hub.exists:
        raise UsageError(f"{hub.name} does not exist, or your token may not read it: check the name, and $HF_TOKEN")
    names = _names(hub)
    if not names:
        raise UsageError(f"{hub.name} has no runs: `orthobench publish --hub` writes them")
    with TemporaryDirectory(prefix="orthobench-") as folder, open_store(Path(folder) / "runs.db", create=True) as store:
        for name in names:
            with _opened(hub, name) as published:
                merge(published, store, keys=[row.key for row in published.stamps()])
        yield store
