"""Repair a database with broken rows: restore a row if its right values follow from others, or else remove it.

A run's spec gives the columns that name the run, and its metric rows give its final and its best value. A value that
says nothing about the result, such as the message, may be lost. An environment that cannot be read keeps its runs, but
its facts are unknown from then on. All other broken rows are removed together with the rows that refer to them.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from sqlalchemy import Column, Connection, Table, bindparam, delete, func, insert, select, text, update
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.types import NullType

from orthobench.errors import DamagedError, UsageError, counted, shell_command
from orthobench.metric import Metric
from orthobench.settings import run_names
from orthobench.store.backup import back_up_alongside
from orthobench.store.damage import (
    UNEXPECTED,
    check_facts,
    check_metrics,
    check_numbers,
    check_seconds,
    faults_in,
    integrity_problems,
    number_column,
    row_problem,
)
from orthobench.store.open import HEAD, open_engine, open_store, reach_database, schema_revision
from orthobench.store.result import is_key
from orthobench.store.sqlite import damaged
from orthobench.store.tables import Base, Environment, Run, Series, StoredMetric, utc_now
from orthobench.system.location import Location
from orthobench.system.strict_json import load_json

UNKNOWN: dict[str, Any] = {
    **dict.fromkeys(("python", "platform", "cpu"), "unknown"),
    **dict.fromkeys(("commit", "cores", "threads", "memory", "accelerator", "cuda")),
    "dirty": False,
    "packages": {},
}
"""The facts that replace an environment's lost facts."""
RESULTS = ("final_value", "best_value", "best_iteration")
WORDS = {"nan": "nan", "inf": "inf", "+inf": "inf", "infinity": "inf", "-inf": "-inf", "-infinity": "-inf"}
"""Numbers that are not finite, by spelling."""


@dataclass(frozen=True)
class RepairedRow:
    """A broken row: its name, what was wrong, and what was done.

    Attributes:
        changes: the new values of a repaired row, by column; None for a row that was removed.
        followers: the number of rows that were removed with it.
    """

    name: str
    reason: str
    changes: Mapping[str, Any] | None
    followers: int = 0

    def __str__(self) -> str:
        if self.changes is None:
            rows = f", with {counted(self.followers, 'row')} below it" if self.followers else ""
            return f"{self.name}: {self.reason}: removed{rows}"
        return f"{self.name}: {self.reason}: repaired, {', '.join(f'{n} = {v!r:.60}' for n, v in self.changes.items())}"


@dataclass(frozen=True)
class Repaired:
    """The result of a repair: the broken rows, and the copy of the database from before the repair.

    Attributes:
        copy: None if nothing was changed, and for a server's database.
    """

    rows: Sequence[RepairedRow]
    copy: Path | None = None


def repair(location: Location, dry_run: bool = False) -> Repaired:
    """Repair or remove the broken rows of a database, in one transaction after a copy; other rows stay as they are.

    A second repair changes nothing. Checkpoints and kept weights of removed runs stay.

    Args:
        dry_run: change nothing, and return what would be done.

    Raises:
        UsageError: there is no such database, or its schema is not this program's.
        DamagedError: SQLite finds the file itself damaged, so that only a backup helps.
        StorageError: the copy cannot be written; then nothing is changed.
    """
    file = location.file
    _check(location, file, dry_run)
    copy = None
    with (
        open_store(location) as store,
        store.engine.connect().execution_options(writes=True) as connection,
        connection.begin() as transaction,
    ):
        if not any(faults_in(connection)):
            return Repaired([])
        if file is not None and not dry_run:
            copy = back_up_alongside(file)
        rows = list(_repaired(connection))
        if left := list(faults_in(connection)):
            raise damaged(location, *map(str, left))
        if dry_run:
            transaction.rollback()
    return Repaired(rows, copy)


def _check(location: Location, file: Path | None, dry_run: bool) -> None:
    """Refuse a database that cannot be repaired.

    Raises:
        UsageError: its schema is older, so that even a dry run would have to upgrade it.
        DamagedError: SQLite finds the file damaged.
    """
    engine = open_engine(location)
    try:
        version = reach_database(engine, location, lambda: schema_revision(engine, location))
    finally:
        engine.dispose()
    if file is not None and (problems := integrity_problems(file)):
        raise damaged(location, *problems)
    if dry_run and version is not None and version < HEAD:
        raise UsageError(
            f"{location} has the older schema {version}: run `{shell_command('db', 'upgrade', '--db', location)}` first"
        )


def _repaired(connection: Connection) -> Iterator[RepairedRow]:
    """Repair or remove the broken rows, parents first, and yield what was done."""
    for table in Base.metadata.sorted_tables:
        # A list, because SQLite leaves open what a query returns while the statements below change its table.
        for fault in list(faults_in(connection, [table.name], limit=None)):
            here = text(f"{number_column(connection)} = {fault.row}")
            if changes := _repair_row(connection, table, fault.row):
                yield RepairedRow(fault.name, fault.reason, changes)
            else:
                followers = _followers(connection, table, fault.row)
                connection.execute(delete(table).where(here))
                yield RepairedRow(fault.name, fault.reason, None, followers)


def _repair_row(connection: Connection, table: Table, row: int) -> dict[str, Any]:
    """Repair a row, and return the changes, which are empty if the row stays broken."""
    changes = _changes(connection, table, row)
    if not changes:
        return {}
    here = text(f"{number_column(connection)} = {row}")
    # Given explicitly, because the column would otherwise get the time of the repair.
    same = {"updated_at": Run.updated_at} if table is Run.__table__ else {}
    # A savepoint, because a change that does not help has to go without the repairs before it.
    savepoint = connection.begin_nested()
    try:
        connection.execute(update(table).where(here).values(same | changes))
        helps = row_problem(connection, table, row) is None
    except SQLAlchemyError:  # another run has this key
        helps = False
    if helps:
        savepoint.commit()
        return changes
    savepoint.rollback()
    return {}


def _changes(connection: Connection, table: Table, row: int) -> dict[str, Any]:
    """Return new values for those broken columns of a row that follow from other values or may be lost."""
    stored = _stored(connection, table, row)
    broken = [column for column in table.columns if not _is_readable(connection, column, row)]
    changes: dict[str, Any] = {
        column.name: None for column in broken if column.nullable and column.name not in (*RESULTS, "value", "kind")
    }
    if table is Environment.__table__:
        is_lost = "facts" in {column.name for column in broken} or not _passes(check_facts, stored["facts"])
        return changes | {"digest": f"unknown-{row}"} | ({"facts": UNKNOWN} if is_lost else {})
    if "run_id" in table.columns and _is_orphan(connection, Run, stored["run_id"]):
        return {}
    if "series_id" in table.columns and _is_orphan(connection, Series, stored["series_id"]):
        return {}
    if "environment_id" in table.columns and _is_orphan(connection, Environment, stored["environment_id"]):
        changes["environment_id"] = _unknown_environment(connection)
    if table is StoredMetric.__table__:
        changes |= _not_finite(stored)
    if table is Run.__table__:
        names = {column.name for column in broken}
        changes |= _from_spec(stored) | _times(stored, names)
        for name, check in (("seconds", check_seconds), ("baselines", check_numbers)):
            if name in names or not _passes(check, stored[name]):
                changes[name] = {}
        if not _passes(check_metrics, stored["metrics"]):
            changes["metrics"] = None
        if names.intersection(RESULTS):
            changes |= _results(connection, row, stored)
    return changes


def _stored(connection: Connection, table: Table, row: int) -> dict[str, Any]:
    """Return a row as it is stored, without any check; text that is not UTF-8 is decoded with surrogates."""
    with _lenient(connection):
        # Plain SQL, because the types of the columns would refuse the very values that are broken.
        query = f'SELECT * FROM "{table.name}" WHERE {number_column(connection)} = {row}'
        return dict(connection.exec_driver_sql(query).mappings().one())


@contextmanager
def _lenient(connection: Connection) -> Iterator[None]:
    """Read text that is not UTF-8 until the context ends."""
    driver = connection.connection.driver_connection
    if not isinstance(driver, sqlite3.Connection):
        yield
        return
    # Replaced, because a single text that is not UTF-8 would make the whole row unreadable.
    driver.text_factory = lambda content: content.decode(errors="surrogateescape")
    try:
        yield
    finally:
        driver.text_factory = str


def _is_readable(connection: Connection, column: Column[Any], row: int) -> bool:
    """Return whether a row's value in one column can be read."""
    try:
        connection.execute(select(column).where(text(f"{number_column(connection)} = {row}"))).all()
    except (*UNEXPECTED, DamagedError):
        return False
    return True


def _is_orphan(connection: Connection, parent: type[Run | Environment | Series], number: Any) -> bool:
    """Return whether the table `parent` has no row with this number."""
    # Without a type, because that of the column would refuse a number that is broken.
    known = select(func.count()).select_from(parent).where(parent.id == bindparam("id", type_=NullType()))
    return not connection.execute(known, {"id": number}).scalar()


def _unknown_environment(connection: Connection) -> int:
    """Return the number of the environment whose facts are lost, inserted if it is new."""
    known = connection.execute(select(Environment.id).where(Environment.digest == "unknown")).scalar()
    if known is not None:
        return known
    added = connection.execute(insert(Environment).values(digest="unknown", facts=UNKNOWN)).inserted_primary_key
    return int(added[0])  # type: ignore[index]


def _not_finite(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return value and kind of a metric row whose value is a word for a number that is not finite."""
    value = stored["value"]
    if isinstance(value, str) and (word := WORDS.get(value.strip().lower())):
        return {"value": None, "kind": word}
    return {"kind": None} if isinstance(value, (int, float)) and stored["kind"] is not None else {}


def _from_spec(stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return the columns of a run that follow from its spec, if another column confirms the spec."""
    try:
        spec = load_json(stored["spec"]) if isinstance(stored["spec"], (str, bytes)) else stored["spec"]
        names = run_names(spec)
        columns = {name: spec[name] for name in ("task", "model", "seed")}
        columns |= {"variant": names["variant"], "condition": names["condition"]}
    except UNEXPECTED:
        return {}
    if stored["key"] != names["key"]:
        if columns["variant"] != stored["variant"] or is_key(stored["key"]):
            return {}
        columns["key"] = names["key"]
    return {name: value for name, value in columns.items() if stored[name] != value}


def _times(stored: Mapping[str, Any], broken: Collection[str]) -> dict[str, Any]:
    """Return the times of a run; an unreadable one is replaced by the other, or by the current time."""
    names = {"created_at", "updated_at"}
    readable = [stored[name] for name in sorted(names) if name not in broken]
    now = datetime.fromisoformat(readable[0]) if readable and isinstance(readable[0], str) else utc_now()
    return dict.fromkeys(sorted(names.intersection(broken)), now)


def _passes(check: Callable[[Any], None], value: Any) -> bool:
    """Return whether a stored JSON value passes a check."""
    try:
        check(load_json(value) if isinstance(value, (str, bytes)) else value)
    except UNEXPECTED:
        return False
    return True


def _results(connection: Connection, row: int, stored: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run's final and best value from its tests, or nothing if one of these rows is broken as well."""
    query = select(StoredMetric.iteration, StoredMetric.value, StoredMetric.kind).join_from(StoredMetric, Series)
    query = query.where(StoredMetric.run_id == row, Series.split == "test", Series.name == stored["metric"])
    query = query.order_by(StoredMetric.iteration)
    try:
        tests = connection.execute(query).all()
        sign = Metric(stored["metric"], stored["goal"]).sign
    except (*UNEXPECTED, DamagedError):
        return {}
    finite = [test for test in tests if test.value is not None and math.isfinite(test.value)]
    if not finite:
        return dict.fromkeys(RESULTS)
    best = min(finite, key=lambda test: sign * test.value)
    return {"final_value": tests[-1].value, "best_value": best.value, "best_iteration": best.iteration}


def _followers(connection: Connection, table: Table, row: int) -> int:
    """Return the number of rows that refer to a row and are removed with it."""
    references = [key for each in Base.metadata.sorted_tables for key in each.foreign_keys if key.column.table is table]
    return sum(connection.execute(select(func.count()).where(key.parent == row)).scalar_one() for key in references)
