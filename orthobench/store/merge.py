"""Joining databases of several machines: each run once, each environment once.

Rows are the same if they agree in what makes them unique: an environment in its digest, a run in its key, and where a
table declares nothing (benchmarks), in everything but their number. A run that both have is kept as it stands here,
unless it got further there: finished before diverged before cut off, and among those cut off the one with more
iterations. What was measured (any table that follows a run and has an iteration) comes along with the run as one; what
was only said of it, such as a name, is added to what was said here. All of it is one transaction, and doing it again
changes nothing.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from sqlalchemy import Column, Connection, Engine, RowMapping, Table, UniqueConstraint, delete, insert, select, update

from orthobench.errors import UsageError
from orthobench.store.atomic import rename
from orthobench.store.open import HEAD, back_up, make_engine, open_store, schema, sqlite_file
from orthobench.store.store import Store
from orthobench.store.tables import Base, Run, Status

RUN = Base.metadata.tables[Run.__tablename__]
BATCH = 1000


@dataclass
class Merged:
    """What a merge did: keys of runs, and the rows added to the other tables."""

    added: list[str] = field(default_factory=list)
    replaced: list[str] = field(default_factory=list)
    kept: list[str] = field(default_factory=list)
    rows: dict[str, int] = field(default_factory=dict)


@contextmanager
def reading(location: str) -> Iterator[Store]:
    """A database to read from, which is not changed: of an older file, an upgraded copy.

    Raises:
        UsageError: it cannot be read, or is of a server and has an older schema.
    """
    engine, file = make_engine(location), sqlite_file(location)
    version = schema(engine)
    engine.dispose()
    if version is None or version >= HEAD:
        with open_store(location) as store:
            yield store
    elif file is None:
        raise UsageError(
            f"{location} has the older schema {version}: run `orthobench db upgrade --db {location}` first"
        )
    else:
        with TemporaryDirectory() as folder:
            copy = Path(folder) / "copy.db"
            back_up(file, copy)
            with open_store(str(copy)) as store:
                yield store


def copy_to_file(location: str, copy: Path) -> None:
    """Copy a database, of whatever kind, to a new SQLite file as it is at one moment.

    Raises:
        UsageError: there is such a file already, or it cannot be written.
    """
    if copy.exists():
        raise UsageError(f"{copy} is there already: name a new file")
    if not copy.parent.is_dir():
        raise UsageError(f"{copy} cannot be made: there is no folder {copy.parent}")
    file = sqlite_file(location)
    if file is not None:
        make_engine(location).dispose()  # refuses what is no database
        back_up(file, copy)
        return
    with TemporaryDirectory(dir=copy.parent) as folder:
        part = Path(folder) / copy.name
        with open_store(location) as source, open_store(str(part), create=True) as store:
            merge(source, store)
        rename(part, copy)


def merge(source: Store, into: Store, is_busy: Callable[[str], bool] = lambda key: False) -> Merged:
    """Bring what one database holds into another.

    Args:
        is_busy: whether the run of this key is being trained; then it is kept as it is here.
    """
    merged = Merged()
    with _snapshot(source.engine) as theirs, into.engine.connect() as plain:
        ours = plain.execution_options(writes=True)
        with ours.begin():
            numbers: dict[str, dict[int, int]] = {}  # of each table's rows: theirs, and ours for the same row
            replaced: set[int] = set()  # their runs that come with all that was measured
            for table in Base.metadata.sorted_tables:
                if table is RUN:
                    numbers[table.name], replaced = _merge_runs(theirs, ours, numbers, is_busy, merged)
                elif _is_measured(table):
                    merged.rows[table.name] = _copy_measured(table, theirs, ours, numbers, replaced)
                else:
                    numbers[table.name], merged.rows[table.name] = _add_missing(table, theirs, ours, numbers)
    return merged


@contextmanager
def _snapshot(engine: Engine) -> Iterator[Connection]:
    """A connection that sees the database as it is at one moment."""
    with engine.connect() as connection:
        if engine.dialect.name != "sqlite":  # where it is so in any case
            connection.execution_options(isolation_level="REPEATABLE READ")
        with connection.begin():
            yield connection


def _merge_runs(
    theirs: Connection,
    ours: Connection,
    numbers: Mapping[str, Mapping[int, int]],
    is_busy: Callable[[str], bool],
    merged: Merged,
) -> tuple[dict[int, int], set[int]]:
    known = {row.key: row for row in ours.execute(select(RUN.c.id, RUN.c.key, RUN.c.status, RUN.c.iterations))}
    same: dict[int, int] = {}
    replaced: set[int] = set()
    for row in theirs.execute(select(RUN).order_by(RUN.c.id)).mappings().all():
        key, values = row["key"], _translated(RUN, row, numbers)
        if values["status"] == Status.RUNNING:
            values["status"] = Status.INTERRUPTED  # nobody here is at it
        here = known.get(key)
        if here is None:
            same[row["id"]] = _insert(RUN, ours, values)
            merged.added.append(key)
        else:
            same[row["id"]] = here.id
            if _rank(values["status"], row["iterations"]) <= _rank(here.status, here.iterations) or is_busy(key):
                merged.kept.append(key)
                continue
            for table in filter(_is_measured, Base.metadata.sorted_tables):
                ours.execute(delete(table).where(_to_run(table) == here.id))
            ours.execute(update(RUN).where(RUN.c.id == here.id).values(values))
            merged.replaced.append(key)
        replaced.add(row["id"])
    return same, replaced


def _rank(status: str, iterations: int) -> tuple[bool, bool, int]:
    """How far a run got, to be compared."""
    state = Status(status)
    return state == Status.FINISHED, state.is_final, 0 if state.is_final else iterations


def _copy_measured(
    table: Table,
    theirs: Connection,
    ours: Connection,
    numbers: Mapping[str, Mapping[int, int]],
    runs: set[int],
) -> int:
    count = 0
    for run in sorted(runs):
        query = select(table).where(_to_run(table) == run)
        for rows in theirs.execute(query).mappings().partitions(BATCH):
            ours.execute(insert(table), [_translated(table, row, numbers) for row in rows])
            count += len(rows)
    return count


def _add_missing(
    table: Table, theirs: Connection, ours: Connection, numbers: Mapping[str, Mapping[int, int]]
) -> tuple[dict[int, int], int]:
    """Add the rows that are not here, and return the numbers of all of theirs, and how many were added."""
    number = _number(table)
    here: dict[str, Any] = {
        _identity(table, dict(row)): None if number is None else row[number.name]
        for row in ours.execute(select(table)).mappings()
    }
    same: dict[int, int] = {}
    count = 0
    for row in theirs.execute(select(table)).mappings():
        values = _translated(table, row, numbers)
        identity = _identity(table, values)
        if identity not in here:
            here[identity] = _insert(table, ours, values)
            count += 1
        if number is not None:
            same[row[number.name]] = here[identity]
    return same, count


def _insert(table: Table, ours: Connection, values: Mapping[str, Any]) -> Any:
    return ours.execute(insert(table).values(values)).inserted_primary_key[0]  # type: ignore[index]


def _number(table: Table) -> Column[Any] | None:
    """The column that the database itself fills with the row's number."""
    return table.autoincrement_column


def _references(table: Table) -> dict[str, str]:
    """The columns that name a row of another table, and that table."""
    return {key.parent.name: key.column.table.name for key in table.foreign_keys}


def _is_measured(table: Table) -> bool:
    return RUN.name in _references(table).values() and "iteration" in table.columns


def _to_run(table: Table) -> Column[Any]:
    return next(table.c[name] for name, other in _references(table).items() if other == RUN.name)


def _translated(table: Table, row: RowMapping, numbers: Mapping[str, Mapping[int, int]]) -> dict[str, Any]:
    """Their row as it is to stand here: without its number, and naming our rows."""
    own = _number(table)
    values = {column.name: row[column.name] for column in table.columns if column is not own}
    return values | {name: numbers[other][values[name]] for name, other in _references(table).items()}


def _identity(table: Table, row: Mapping[str, Any]) -> str:
    """What makes a row the same as another's."""
    unique = [constraint for constraint in table.constraints if isinstance(constraint, UniqueConstraint)]
    columns: Sequence[Any] = list(unique[0].columns) if unique else list(table.columns)
    named = {column.name: row[column.name] for column in columns if column is not _number(table)}
    return json.dumps(named, sort_keys=True, default=str)
