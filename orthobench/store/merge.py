"""Merge databases from several machines: the result has each run and each environment once.

Rows are equal if their unique columns are equal, such as an environment's digest or a run's key. Rows of a table
without a unique constraint (benchmarks) are equal if all columns except the id are equal. If both databases have a run,
the target's run stays, unless the source's run has more progress: finished ranks before diverged, diverged before
interrupted, and more iterations before fewer. Measured rows (of tables with a run and an iteration) are replaced
together with their run. Other rows of a run, such as its tags, are added. A merge is one transaction, and repeating it
changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    LargeBinary,
    RowMapping,
    Table,
    UniqueConstraint,
    delete,
    insert,
    select,
    type_coerce,
    update,
)
from sqlalchemy.exc import IntegrityError

from orthobench.errors import DamagedError, UsageError, first_line, shell_command
from orthobench.store.backup import already_there, back_up, check_new, row_counts
from orthobench.store.column_types import Block
from orthobench.store.damage import integrity_problems
from orthobench.store.open import HEAD, open_store, stored_revision
from orthobench.store.result import Status, as_name
from orthobench.store.row_checks import refuse_faults, refusing_damage
from orthobench.store.sqlite import connect, damaged
from orthobench.store.store import Store
from orthobench.store.tables import Base, Benchmark, Environment, Run, Weights, facts_digest
from orthobench.system.files import name_new, unwritable
from orthobench.system.location import Location, Place

RUN = Base.metadata.tables[Run.__tablename__]
ENVIRONMENT = Base.metadata.tables[Environment.__tablename__]
NOT_OF_RUNS = (Base.metadata.tables[Benchmark.__tablename__], Base.metadata.tables[Weights.__tablename__])
"""Tables whose rows are not merged with single runs, because they are of the machine."""
BATCH = 1000


@dataclass
class Merged:
    """The result of a merge.

    Attributes:
        added, replaced, unchanged: the keys of runs that the target did not have, of those of which the source had got
            further, and of the others.
        rows: the number of rows added to each other table.
        copied_weights, missing_weights: the number of files of weights that were copied with the runs, and of those
            that are missing or were changed.
    """

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    unchanged: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)
    copied_weights: int = 0
    missing_weights: int = 0


@contextmanager
def opened_unchanged(place: Place) -> Iterator[Store]:
    """Open a database without changing it: a file with an older schema is copied, and the copy is upgraded.

    Raises:
        UsageError: the database cannot be read, or it is on a server and has an older schema.
    """
    location = Location.of(place)
    version = stored_revision(location)
    if version >= HEAD:
        with open_store(location) as store:
            yield store
    elif (file := location.file) is None:
        raise UsageError(
            f"{location} has the older schema {version}: run `{shell_command('db', 'upgrade', '--db', location)}` first"
        )
    else:
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            back_up(file, copy)
            try:
                store = open_store(copy)
            except DamagedError as error:
                raise DamagedError(str(error).replace(str(copy), str(location))) from error
            with store:
                yield store


@contextmanager
def opened_checked(place: Place) -> Iterator[Store]:
    """Open a database as `opened_unchanged` does, after a check of every row, because these may be a stranger's.

    Raises:
        UsageError: as for `opened_unchanged`.
        DamagedError: the database is damaged, or has a row that cannot be read.
    """
    with opened_unchanged(place) as store:
        refuse_faults(store.engine)
        yield store


def copy_to_file(location: Location, copy: Path) -> None:
    """Copy one state of a database of any kind to a new SQLite file.

    Raises:
        UsageError: the file exists already, or its folder does not exist.
        StorageError: the file cannot be written.
    """
    check_new(copy)
    file = location.file
    if file is not None:
        if stored_revision(location) == HEAD:
            open_store(location).close()  # refuses a file that lacks a table or a column
        back_up(file, copy)
        return
    # In the folder of the copy, because a file can get its name in one step only on its own disk.
    with TemporaryDirectory(dir=copy.parent) as folder:
        part = Path(folder) / copy.name
        with open_store(location) as source, open_store(part, create=True) as store:
            merged = merge(source, store)
        counts = merged.rows | {RUN.name: len(merged.added)}
        with connect(part) as connection:
            stored = row_counts(connection)
        problems = integrity_problems(part)
        if problems or any(stored[name] != count for name, count in counts.items()):
            raise unwritable(copy, "the copy has faults", "check the disk, or name another file")
        try:
            name_new(part, copy)
        except FileExistsError as error:
            raise already_there(copy) from error


def merge(
    source: Store,
    target: Store,
    is_locked: Callable[[str], bool] = lambda key: False,
    keys: Collection[str] | None = None,
) -> Merged:
    """Merge the rows of a source database into a target database.

    Args:
        is_locked: whether a process is training the target's run with this key, which then stays unchanged.
        keys: merge only these runs, without benchmarks and kept weights; None merges everything.

    Raises:
        DamagedError: a row of the source cannot be read, contradicts another one, or refers to a missing one.
    """
    try:
        with refusing_damage(source.engine):
            return _merge(source, target, is_locked, keys)
    except IntegrityError as error:  # the source's schema need not have the constraints of this program's
        raise damaged(source.location, first_line(error.orig or error)) from error


def _merge(source: Store, target: Store, is_locked: Callable[[str], bool], keys: Collection[str] | None) -> Merged:
    merged = Merged()
    with _snapshot(source.engine) as source_connection, target.engine.connect() as connection:
        target_connection = connection.execution_options(writes=True)
        with target_connection.begin():
            ids: dict[str, dict[int, int]] = {}  # by table: the target's id of each of the source's rows
            copied: set[int] = set()  # the source's runs whose measured rows are copied
            # In this order, because a row refers to the new ids of rows in earlier tables.
            for table in Base.metadata.sorted_tables:
                if table is RUN:
                    ids[table.name], copied = _merge_runs(
                        source_connection, target_connection, ids, is_locked, merged, keys
                    )
                elif keys is not None and table in NOT_OF_RUNS:
                    continue
                elif _is_measured(table):
                    merged.rows[table.name] = _copy_measured(table, source_connection, target_connection, ids, copied)
                else:
                    ids[table.name], added = _add_missing(table, source_connection, target_connection, ids)
                    merged.rows[table.name] = added
    return merged


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """Yield a connection that sees one state of the database."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":  # SQLite's transactions are snapshots anyway
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def _merge_runs(
    source: Connection,
    target: Connection,
    ids: Mapping[str, Mapping[int, int]],
    is_locked: Callable[[str], bool],
    merged: Merged,
    keys: Collection[str] | None,
) -> tuple[dict[int, int], set[int]]:
    """Merge the runs; return the target's id of each source run, and the source runs whose measured rows to copy.

    Raises:
        DamagedError: a run's key is not a valid key.
    """
    with refusing_damage(target.engine):
        known = target.execute(select(RUN.c.id, RUN.c.key, RUN.c.status, RUN.c.iterations)).all()
    existing_runs = {row.key: row for row in known}
    run_ids: dict[int, int] = {}
    copied: set[int] = set()
    for row in source.execute(select(RUN).order_by(RUN.c.id)).mappings().all():
        key = as_name(row["key"])
        if keys is not None and key not in keys:
            continue
        values = _translated(RUN, row, ids)
        if values["status"] == Status.RUNNING:
            values["status"] = Status.INTERRUPTED  # its process is not on this machine
        existing = existing_runs.get(key)
        if existing is None:
            run_ids[row["id"]] = _insert(RUN, target, values)
            merged.added.append(key)
        else:
            run_ids[row["id"]] = existing.id
            progress = _rank(values["status"], row["iterations"])
            if progress <= _rank(existing.status, existing.iterations) or is_locked(key):
                merged.unchanged.append(key)
                continue
            for table in filter(_is_measured, Base.metadata.sorted_tables):
                target.execute(delete(table).where(_run_column(table) == existing.id))
            target.execute(update(RUN).where(RUN.c.id == existing.id).values(values))
            merged.replaced.append(key)
        copied.add(row["id"])
    return run_ids, copied


def _rank(status: str, iterations: int) -> tuple[bool, bool, int]:
    """Return a run's progress as a comparable value."""
    state = Status(status)
    return state == Status.FINISHED, state.is_final, 0 if state.is_final else iterations


def _copy_measured(
    table: Table,
    source: Connection,
    target: Connection,
    ids: Mapping[str, Mapping[int, int]],
    runs: set[int],
) -> int:
    """Copy the measured rows of these source runs; return the number of copied rows."""
    count, column, in_order = 0, _run_column(table), sorted(runs)
    for start in range(0, len(in_order), BATCH):
        query = select(*_packed(table)).where(column.in_(in_order[start : start + BATCH])).order_by(column)
        # yield_per, because a server would send all rows of these runs at once.
        for rows in source.execute(query.execution_options(yield_per=BATCH)).mappings().partitions():
            target.execute(insert(table), [_translated(table, row, ids) for row in rows])
            count += len(rows)
    return count


def _packed(table: Table) -> list[ColumnElement[Any]]:
    """Return the columns of a table with its vectors as they are stored, because unpacking them takes very long."""
    return [
        type_coerce(each, LargeBinary).label(each.name) if isinstance(each.type, Block) else each
        for each in table.columns
    ]


def _add_missing(
    table: Table, source: Connection, target: Connection, ids: Mapping[str, Mapping[int, int]]
) -> tuple[dict[int, int], int]:
    """Add the source's missing rows; return the target's id of each source row, and the number of added rows."""
    id_column = _id_column(table)
    with refusing_damage(target.engine):
        known = target.execute(select(table)).mappings().all()
    target_ids: dict[str, Any] = {
        _identity(table, dict(row)): None if id_column is None else row[id_column.name] for row in known
    }
    row_ids: dict[int, int] = {}
    count = 0
    for row in source.execute(select(table)).mappings():
        if any(row[name] not in ids[other] for name, other in _references(table).items()):
            continue  # the row belongs to a run that is not merged
        values = _translated(table, row, ids)
        identity = _identity(table, values)
        if identity not in target_ids:
            target_ids[identity] = _insert(table, target, values)
            count += 1
        if id_column is not None:
            row_ids[row[id_column.name]] = target_ids[identity]
    return row_ids, count


def _insert(table: Table, target: Connection, values: Mapping[str, Any]) -> Any:
    return target.execute(insert(table), dict(values)).inserted_primary_key[0]  # type: ignore[index]


def _id_column(table: Table) -> Column[Any] | None:
    """Return the column that the database fills with the row's id."""
    return table.autoincrement_column


def _references(table: Table) -> dict[str, str]:
    """Return the table to which each foreign key refers, by column."""
    return {key.parent.name: key.column.table.name for key in table.foreign_keys}


def _is_measured(table: Table) -> bool:
    """Return whether a table holds rows of a run by iteration, as metrics, traces and segments do."""
    return RUN.name in _references(table).values() and "iteration" in table.columns


def _run_column(table: Table) -> Column[Any]:
    """Return the column of a table that refers to a run."""
    return next(table.c[name] for name, other in _references(table).items() if other == RUN.name)


def _translated(table: Table, row: RowMapping, ids: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    """Return a source row as the target stores it: without its id, and with the target's ids of other rows.

    Raises:
        ValueError: it refers to a missing row.
    """
    own = _id_column(table)
    values = {column.name: row[column.name] for column in table.columns if column is not own}
    if table is ENVIRONMENT:  # computed here, because two databases must not mean different facts by it
        values["digest"] = facts_digest(values["facts"])
    for name, other in _references(table).items():
        if values[name] not in ids[other]:
            raise ValueError(f"a row of table {table.name} refers to a missing {other}")
        values[name] = ids[other][values[name]]
    return values


def _identity(table: Table, row: Mapping[str, Any]) -> str:
    """Return a row's unique columns as JSON, which is the same for equal rows."""
    unique = [constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)]
    columns: Sequence[Any] = list(unique[0].columns) if unique else list(table.columns)
    named = {column.name: row[column.name] for column in columns if column is not _id_column(table)}
    return json.dumps(named, sort_keys=True, default=str)
