"""Look after a database: describe, upgrade, protect, copy, query and export it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from orthobench.analysis.selection import select_runs
from orthobench.errors import UsageError
from orthobench.options.arguments import RunsFormat
from orthobench.settings.filters import read_conditions
from orthobench.sinks.export_runs import export as send
from orthobench.sinks.targets import Target, parse_target
from orthobench.store import Run, Store, open_store
from orthobench.store import open as schemas
from orthobench.store.describe import Description, describe_database
from orthobench.store.export_tables import as_csv
from orthobench.store.export_tables import export as write
from orthobench.store.merge import copy_to_file, opened_unchanged
from orthobench.store.query import Table
from orthobench.store.query import query as query
from orthobench.store.result import is_key
from orthobench.store.sqlite import is_protected, summary
from orthobench.store.sqlite import protect as set_protection
from orthobench.system.cycles import without_cycle_search
from orthobench.system.location import Location
from orthobench.training.checkpoint import checkpoint_bytes, checkpoint_root
from orthobench.training.settled import current_status, status_in
from orthobench.weights.copy import copy_weights, is_elsewhere
from orthobench.weights.weights_files import missing_weights, weights_folder


@dataclass(frozen=True)
class Info:
    """A database with the files next to it.

    Attributes:
        age: whether its schema is older (-1), that of this program (0), or newer (1).
        states: how many runs are in each state today.
        weights: the number and bytes of the kept files that exist, of the missing ones, and the folders of all.
        checkpoints: the bytes of each run's checkpoints in their folder; none are known for a server.
    """

    db: Location
    content: Description
    age: int
    is_protected: bool
    states: Mapping[str, int]
    weights: Mapping[str, Any]
    checkpoints: Mapping[str, int]

    @property
    def checkpoint_folder(self) -> Location | Path:
        return checkpoint_root(self.db)

    @property
    def problems(self) -> str:
        """The damage in one line; empty without any."""
        return summary(self.content.problems)

    def record(self) -> dict[str, Any]:
        """Return the facts as JSON values."""
        return asdict(self.content) | {
            "database": str(self.db),
            "newest_schema": schemas.HEAD,
            "runs": dict(self.states),
            "weights": {name: value for name, value in self.weights.items() if name != "missing_bytes"},
            "checkpoints": {"runs": len(self.checkpoints), "bytes": sum(self.checkpoints.values())},
        }


@without_cycle_search()
def describe(db: Location, check: bool = False) -> Info:
    """Return schema, sizes, runs by status, machines and damage of a database.

    Args:
        check: read every row, also in a large database.

    Raises:
        UsageError: the database does not exist or cannot be read.
    """
    content, root = describe_database(db, check), checkpoint_root(db)
    with Store(schemas.open_engine(db)) as store:
        states = Counter(
            str(current_status(store, root, key, status) if is_key(key) else status) for key, status in content.runs
        )
        weights = store.weights() if "weights" in content.rows else []
        missing = missing_weights(db, {row.id: row.key for row in store.stamps()}, weights) if weights else []
    lost = sum(row.bytes for row in missing)
    files = {
        "files": len(weights) - len(missing),
        "bytes": sum(row.bytes for row in weights) - lost,
        "missing": len(missing),
        "missing_bytes": lost,
        "folders": sorted({str(row.path.parent if is_elsewhere(row) else weights_folder(db).root) for row in weights}),
    }
    # Only those next to a file, because nobody knows where a server's runs had theirs.
    checkpoints = checkpoint_bytes(root) if db.file is not None and isinstance(root, Path) else {}
    age = (content.schema > schemas.HEAD) - (content.schema < schemas.HEAD)
    protected = db.file is not None and is_protected(db.file)
    return Info(db, content, age, protected, states, files, checkpoints)


def upgrade(db: Location) -> tuple[str, str, Path | None]:
    """Upgrade the schema of a database; return the old and the new one, and the path of the copy of an older file."""
    old, new = schemas.stored_revision(db), schemas.HEAD
    open_store(db).close()
    return old, new, schemas.backup_of(db.file, old) if db.file is not None and old != new else None


def protect(db: Location, protected: bool = True) -> None:
    """Protect a database, to which commands without `db` then add no runs, or end its protection.

    Raises:
        UsageError: the database is on a server, or cannot be changed.
    """
    if db.file is None:
        raise UsageError("a server's database is never a default: protection is for SQLite files")
    open_store(db).close()
    set_protection(db.file, protected)


def backup(db: Location, file: Path) -> tuple[int, Path | Location]:
    """Copy a database to a new SQLite file; return how many files of weights were left in their folder, and where.

    The copy is consistent, also while runs are training.
    """
    copy_to_file(db, file)
    left = 0
    with suppress(UsageError), opened_unchanged(file) as store:  # a newer version may have written the database
        left = sum(not is_elsewhere(record) for record in store.weights())
    return left, weights_folder(db).root


def backup_with_weights(db: Location, file: Path) -> tuple[int, int]:
    """Copy a database and its weights to a new file; return how many files of weights were copied, and how many not."""
    with opened_unchanged(db):  # before the copy, because only a database that can be read names its weights
        pass
    copy_to_file(db, file)
    with open_store(file) as store:
        return copy_weights(db, Location.of(file), store, [run.key for run in store.runs(brief=True)])


def csv_of(table: Table) -> str:
    """Return the answer to a query as CSV in which no spreadsheet finds a formula."""
    import pandas

    return as_csv(pandas.DataFrame(list(table.rows), columns=table.columns))


@contextmanager
def _selected(db: Location, where: Sequence[str]) -> Iterator[tuple[Store, list[Run]]]:
    """Yield an open database, and its runs that meet the conditions.

    Raises:
        UsageError: no run meets them, or a condition is wrong.
    """
    conditions = read_conditions(where)
    with opened_unchanged(db) as store:
        runs = select_runs(store.runs(), conditions, status_in(store, db))
        if not runs:
            raise UsageError(f"{db} holds no runs to export: train one with `orthobench run`")
        yield store, runs


def export_tables(
    db: Location, folder: Path, form: RunsFormat, *, where: Sequence[str] = (), vectors: bool = False
) -> tuple[int, list[Path]]:
    """Write runs, segments and metrics as tables; return the number of runs, and the files.

    Raises:
        UsageError: no run meets the conditions, or a file cannot be written in this format.
        StorageError: the folder cannot be written.
    """
    with _selected(db, where) as (store, runs):
        return len(runs), write(store, runs, folder, form, vectors, status_in(store, db))


def export_runs(
    db: Location, destinations: Sequence[str], *, where: Sequence[str] = ()
) -> Iterator[tuple[Target, int]]:
    """Send runs to tracking programs, each as a new run, and yield the programs with the number of runs.

    In TensorBoard a run replaces the one that was sent before.

    Raises:
        UsageError: a destination is unknown, or no run meets the conditions.
        StorageError: a destination cannot be used.
    """
    targets = list(dict.fromkeys(map(parse_target, destinations)))
    with _selected(db, where) as (store, runs):
        for target in targets:
            send(store, runs, target, status_in(store, db))
            yield target, len(runs)
