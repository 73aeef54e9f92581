"""Checks for damage of a database.

SQLite notices damaged pages, but neither a changed text or number nor a value of the wrong type. The types of the
columns refuse such values (see `orthobench.store.tables`), and the records of a run and of its environment are checked
when they are loaded. A row that fails is a `Fault`: readers leave it out with a warning (`orthobench.store.reader`),
and `orthobench db repair` repairs or removes it (`orthobench.store.repair`). `problems_of` reads every row.
"""

from __future__ import annotations

import math
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    LargeBinary,
    String,
    Table,
    event,
    false,
    func,
    inspect,
    literal_column,
    or_,
    select,
    text,
    type_coerce,
)
from sqlalchemy.exc import SQLAlchemyError

from orthobench.errors import DamagedError, UsageError, shell_command
from orthobench.metric import Metric
from orthobench.settings import merged_settings, run_names
from orthobench.store.result import CLOCK, EVENTS, Status, check_key
from orthobench.store.specs import Spec
from orthobench.store.sqlite import (
    RESTORE,
    SHOWN_PROBLEMS,
    connect,
    damaged,
    primary_code,
    repair_of,
    translated_errors,
)
from orthobench.store.tables import (
    VERSION_TABLE,
    WORDS,
    Base,
    Block,
    Environment,
    NotFinite,
    Run,
    Series,
    StoredTrace,
    open_block,
)
from orthobench.system.location import Location

CHECK_SECONDS = 5.0
"""The longest check of a file before it is written to; a larger file is checked only in part."""
UNEXPECTED = (
    *(ValueError, TypeError, LookupError, AttributeError, ArithmeticError, AssertionError, MemoryError),
    RuntimeError,
    SQLAlchemyError,
    sqlite3.Error,
)
"""Errors that a damaged value may raise anywhere."""

ROWS_AT_ONCE = 256
"""Rows that are read at once in the search for broken ones."""
SHARED = (Environment.__tablename__, Series.__tablename__)
"""Tables whose rows are needed to read many other rows."""
MOST_FAULTS = 1000
"""The most broken rows of a table that readers leave out; they refuse a table with more."""

_checked: set[tuple[int, int]] = set()  # files that this process has checked, by device and number


@dataclass(frozen=True)
class Fault:
    """A row that cannot be read: its table and number, its name for the user, and the reason."""

    table: str
    row: int
    name: str
    reason: str

    def __str__(self) -> str:
        return f"{self.name}: {self.reason}"


@contextmanager
def explained(engine: Engine) -> Iterator[None]:
    """Check a SQLite file for damage if the block raises an unexpected error.

    Raises:
        DamagedError: the file is damaged.
    """
    try:
        yield
    except UNEXPECTED as error:
        explain(engine, error)
        raise


def explain(engine: Engine, error: BaseException | None) -> None:
    """Check a SQLite file for damage after an unexpected error.

    Raises:
        DamagedError: the file is damaged.
    """
    if isinstance(error, UNEXPECTED):
        refuse(engine, error)


def refuse(engine: Engine, cause: BaseException | None = None) -> None:
    """Refuse a SQLite file that is damaged or has broken rows; the error says which of the two, and gives the fix.

    Raises:
        DamagedError: the file is damaged or has broken rows.
    """
    damages, faults = _examined(engine)
    if damages or faults:
        location = Location.of_database(engine.url)
        fix = RESTORE if damages else repair_of(location)
        raise damaged(location, *damages, *map(str, faults), fix=fix) from cause


def problems_of(engine: Engine, tables: Collection[str] | None = None) -> list[str]:
    """Read every row of a database, and return the faults; a server checks its own files.

    Args:
        tables: read only these tables, and leave out SQLite's check of its whole file.
    """
    if engine.dialect.name != "sqlite":
        with engine.connect() as connection:
            return list(map(str, faults_in(connection, tables)))
    damages, faults = _examined(engine, tables)
    return [*damages, *map(str, faults)]


def _examined(engine: Engine, tables: Collection[str] | None = None) -> tuple[list[str], list[Fault]]:
    """Return what SQLite finds in its file, and the broken rows; `tables` as for `problems_of`."""
    if engine.dialect.name != "sqlite":
        return [], []
    try:
        with engine.connect() as connection:
            lines = connection.execute(text("PRAGMA integrity_check")).scalars().all() if tables is None else ()
            damages = [str(line) for line in lines if line != "ok"]
            return damages, list(faults_in(connection, tables))
    except DamagedError as error:
        return [_problem(error)], []
    except UnicodeDecodeError as error:
        return [str(error)], []


def faults_in(
    connection: Connection, tables: Collection[str] | None = None, limit: int | None = MOST_FAULTS
) -> Iterator[Fault]:
    """Yield the rows of these tables, or of all, that cannot be read or refer to a missing row.

    A row whose run is broken belongs to that fault and is not listed. A server itself refuses values of the wrong type
    and references to missing rows. On a server only the tables with JSON, vectors or words, which are those with `id`,
    are therefore checked.

    Args:
        limit: yield at most one row more than this number per table; None for all.

    Raises:
        DamagedError: SQLite cannot read its file.
    """
    unreadable: dict[str, dict[int, str]] = {}
    for table in Base.metadata.sorted_tables:
        chosen = tables is None or table.name in tables
        columns = _readable_columns(connection, table)
        if not columns or not (chosen or table.name in SHARED):
            continue
        faults = unreadable[table.name] = dict(_unreadable(connection, table, columns, limit))
        for row, parent in _orphans(connection, table):
            faults.setdefault(row, f"its {parent} is missing")
        for parent in SHARED:
            if f"{parent}_id" in table.columns and (lost := unreadable.get(parent)):
                for row in _rows_of(connection, table, parent, lost):
                    faults.setdefault(row, f"its {parent} cannot be read")
        if chosen:
            for row, reason in faults.items():
                yield Fault(table.name, row, _row_name(connection, table, row), reason)


def _readable_columns(connection: Connection, table: Table) -> list[Column[Any]]:
    """Return the columns to check: all of a server's table, or those that exist in a file with an older schema."""
    if connection.dialect.name != "sqlite":
        return list(table.columns) if "id" in table.columns else []
    stored = _stored_columns(connection, table)
    return [column for column in table.columns if column.name in stored]


def _unreadable(
    connection: Connection, table: Table, columns: Sequence[Column[Any]], limit: int | None
) -> Iterator[tuple[int, str]]:
    """Yield the number of each row that cannot be read, with the reason."""
    number: ColumnElement[int] = literal_column(number_column(connection))
    count = 0
    query = select(number).select_from(table).order_by(number)
    is_suspect, at_once = _suspect(connection, columns), ROWS_AT_ONCE
    if is_suspect is not None:
        query, at_once = query.where(is_suspect), 1
    rows: Sequence[int] = connection.execute(query).scalars().all()
    read = partial(_read_rows, connection, table, columns)
    for start in range(0, len(rows), at_once):
        for fault in _searched(read, rows[start : start + at_once]):
            yield fault
            count += 1
            if limit is not None and count > limit:
                return


def _suspect(connection: Connection, columns: Sequence[Column[Any]]) -> ColumnElement[bool] | None:
    """Return a condition on the rows with a value that no such column can have; None if only Python can tell.

    Millions of numbers are thereby checked in SQL. A server itself refuses values of the wrong type.
    """
    kinds = {Integer: ("integer", "null"), Float: ("real", "integer", "null")}
    wrong: list[ColumnElement[bool]] = []
    for column in columns:
        if isinstance(column.type, NotFinite):
            wrong.append(type_coerce(column, String).not_in(WORDS))
        elif (names := next((names for kind, names in kinds.items() if isinstance(column.type, kind)), None)) is None:
            return None
        elif connection.dialect.name == "sqlite":
            wrong.append(func.typeof(column).not_in(names))
    return or_(false(), *wrong)


def row_problem(connection: Connection, table: Table, row: int) -> str | None:
    """Return why a row cannot be read, or None if it can. The rows that it refers to are not checked."""
    read = partial(_read_rows, connection, table, _readable_columns(connection, table))
    return next((reason for _, reason in _searched(read, [row])), None)


def _read_rows(connection: Connection, table: Table, columns: Sequence[Column[Any]], first: int, last: int) -> None:
    """Read the rows with these numbers.

    Raises:
        Exception: any of `UNEXPECTED`, or DamagedError; a row cannot be read.
    """
    range_ = literal_column(number_column(connection), Integer).between(first, last)
    check = _CHECKS.get(table.name, lambda row: None)
    unread = [  # because unpacking takes longer than the check
        type_coerce(each, LargeBinary).label(each.name) if isinstance(each.type, Block) else each for each in columns
    ]
    for row in connection.execute(select(*unread).where(range_)).mappings():
        check(dict(row))


def _searched(read: Callable[[int, int], None], rows: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the rows that cannot be read, by halving the ranges that fail.

    Raises:
        DamagedError: SQLite cannot read its file.
    """
    try:
        read(rows[0], rows[-1])
    except (*UNEXPECTED, DamagedError) as error:
        if isinstance(error, DamagedError) and primary_code(error.__cause__):
            raise
        if len(rows) > 1:
            # By halves, because broken rows are few, and a query for each row would take very long.
            middle = len(rows) // 2
            yield from _searched(read, rows[:middle])
            yield from _searched(read, rows[middle:])
        else:
            yield rows[0], _printable(_problem(error) if isinstance(error, DamagedError) else str(error))


def _printable(text: str) -> str:
    """Return a text of a damaged file as one line for a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))[:200]


def number_column(connection: Connection) -> str:
    """Return the name of the column that numbers a table's rows."""
    # Not always the id, because tags, segments and weights have none.
    return "rowid" if connection.dialect.name == "sqlite" else "id"


def _orphans(connection: Connection, table: Table) -> Iterator[tuple[int, str]]:
    """Yield the number of each row that refers to a missing row, and the missing row's table."""
    if connection.dialect.name == "sqlite":
        for _, row, parent, _ in connection.exec_driver_sql(f'PRAGMA foreign_key_check("{table.name}")').all():
            yield row, parent


def _rows_of(connection: Connection, table: Table, parent: str, lost: Collection[int]) -> Sequence[int]:
    """Return the numbers of the rows that refer to any of these rows of the table `parent`."""
    numbers = ", ".join(map(str, lost))
    query = f'SELECT {number_column(connection)} FROM "{table.name}" WHERE {parent}_id IN ({numbers})'
    return connection.exec_driver_sql(query).scalars().all()


def _row_name(connection: Connection, table: Table, row: int) -> str:
    """Return the name of a row for the user: the run's key, or the row's number."""
    if table is Run.__table__:
        # As bytes, because the broken value may be the key itself, in no valid encoding.
        content = "CAST(key AS BLOB)" if connection.dialect.name == "sqlite" else "convert_to(key, 'UTF8')"
        key = connection.exec_driver_sql(f"SELECT {content} FROM run WHERE id = {row}").scalar()
        if shown := _printable(bytes(key or b"").decode(errors="replace")):
            return f"run {shown[:40]}"
    return f"row {row} of table {table.name}"


def check_tables(engine: Engine, location: Location) -> None:
    """Refuse a database of the newest schema in which a table or a column of a SQLite file is missing.

    Raises:
        DamagedError: something is missing.
    """
    missing = []
    with engine.connect() as connection:
        table_names = set(inspect(connection).get_table_names())
        for table in Base.metadata.sorted_tables:
            if table.name not in table_names:
                missing.append(f"it has no table {table.name}")
            elif engine.dialect.name == "sqlite":
                lost = set(table.columns.keys()) - _stored_columns(connection, table)
                missing += [f"its table {table.name} has no column {name}" for name in sorted(lost)]
    if missing:
        raise damaged(location, *missing)


def _stored_columns(connection: Connection, table: Table) -> set[str]:
    return {row[1] for row in connection.exec_driver_sql(f'PRAGMA table_info("{table.name}")')}


def check_before_writing(file: Path) -> None:
    """Refuse a damaged SQLite file; each process checks a file once.

    Raises:
        DamagedError: SQLite finds the file damaged.
    """
    if not file.exists():
        return
    status = file.stat()
    # By number and not by path, because several paths may lead to the same file.
    if (status.st_dev, status.st_ino) in _checked:
        return
    if problems := _checked_by(file, f"quick_check({SHOWN_PROBLEMS + 1})", seconds=CHECK_SECONDS):
        raise damaged(file, *problems)
    _checked.add((status.st_dev, status.st_ino))


def refuse_views(engine: Engine) -> None:
    """Refuse a SQLite file in which a view has the name of a table: a view may be endless.

    Raises:
        DamagedError: it has such a view.
    """
    if engine.dialect.name != "sqlite":
        return
    names = [VERSION_TABLE, *Base.metadata.tables]
    with engine.connect() as connection:
        views = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'view'")).scalars().all()
    if problems := [f"its {view} is a view, not a table" for view in views if str(view).lower() in names]:
        raise damaged(Location.of_database(engine.url), *problems)


def refuse_triggers(engine: Engine) -> None:
    """Refuse to write to a SQLite file with triggers: orthobench has none, and they would change what it writes.

    Raises:
        UsageError: it has triggers.
    """
    if engine.dialect.name != "sqlite":
        return
    with engine.connect() as connection:
        name = connection.execute(text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalar()
    if name is not None:
        database = Location.of_database(engine.url)
        raise UsageError(
            f"{database} has a trigger {str(name)[:40]!r} that orthobench did not create, so orthobench does not write "
            f"to it: copy its runs to a new database with `{shell_command('db', 'merge', database, '--db', 'NEW.db')}`"
        )


def integrity_problems(file: Path, *, immutable: bool = False) -> list[str]:
    """Return what SQLite's full check finds in a file; `immutable` is as in `connect`."""
    try:
        return _checked_by(file, "integrity_check", immutable=immutable)
    except DamagedError as error:
        return [_problem(error)]


def _checked_by(file: Path, check: str, seconds: float = float("inf"), immutable: bool = False) -> list[str]:
    """Return what one of SQLite's checks finds within a number of seconds.

    Raises:
        DamagedError: the file is too damaged for the check.
    """
    deadline = time.monotonic() + seconds
    with (
        translated_errors(file, f"database {file} cannot be checked"),
        connect(file, immutable=immutable) as connection,
    ):
        # Interrupted from here, because SQLite has no time limit for its checks.
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            return [str(line) for (line,) in connection.execute(f"PRAGMA {check}") if line != "ok"]
        except sqlite3.OperationalError as error:
            if primary_code(error) not in (sqlite3.SQLITE_INTERRUPT, sqlite3.SQLITE_BUSY):
                raise
            return []


def _problem(error: DamagedError) -> str:
    """Return the problem in an error of this package."""
    return str(error).partition(" is damaged: ")[2].removesuffix(f"; {RESTORE}") or str(error)


def check_spec(spec: Any) -> None:
    """Refuse a value that is not the canonical form of a run.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: it is not.
    """
    for name in ("task", "model", "task_version", "model_version", "seed"):
        if type(spec[name]) is not (int if name == "seed" else str):
            raise ValueError(f"the {name} of its spec is {spec[name]!r:.40}")
    merged_settings(spec)


def check_numbers(values: Any) -> None:
    """Refuse a value that is not an object of finite numbers, such as the baselines of a run and its seconds.

    Raises:
        ValueError: it is none.
    """
    if not isinstance(values, dict):
        raise ValueError(f"{values!r:.40} is not an object of numbers")
    for name, value in values.items():
        if type(value) not in (int, float) or not math.isfinite(value):
            raise ValueError(f"{name:.40} is {value!r:.40}, not a number")


def check_seconds(values: Any) -> None:
    """Refuse a value that is not an object of finite numbers and, for a run on a GPU, the name of its clock.

    Raises:
        ValueError: it is none.
    """
    check_numbers(
        {name: value for name, value in values.items() if name != CLOCK} if isinstance(values, dict) else values
    )
    if isinstance(values, dict) and values.get(CLOCK, EVENTS) != EVENTS:
        raise ValueError(f"{CLOCK} is {values[CLOCK]!r:.40}, not {EVENTS!r}")


def check_metrics(records: Any) -> None:
    """Refuse a value that does not declare metrics; null declares none.

    Raises:
        ValueError, TypeError, AttributeError: it does not.
    """
    for name, record in ({} if records is None else records).items():
        for field, value in vars(Metric.read(name, record)).items():
            if type(value) is not (bool if field.startswith("is_") else str):
                raise ValueError(f"the {field} of {name:.40} is {value!r:.40}")


def check_facts(facts: Any) -> None:
    """Refuse the facts of an environment that are not as `orthobench.system.environment.describe` writes them.

    Raises:
        ValueError, TypeError, LookupError, AttributeError: they are not.
    """
    texts = [facts.get("commit"), *facts.get("packages", {}).values()]
    for plugin in facts.get("plugins", ()):
        texts += [plugin.get("layer"), plugin.get("path"), plugin["revision"], *plugin["files"].values()]
    for value in texts:
        if not isinstance(value, str | None):
            raise ValueError(f"its facts contain {value!r:.40} instead of a text")


def _check_environment(environment: Mapping[str, Any]) -> None:
    try:
        check_facts(environment.get("facts", {}))
    except KeyError as error:
        raise ValueError(f"its facts have no {error}") from error
    except (TypeError, AttributeError) as error:
        raise ValueError(f"its facts cannot be read: {error}") from error


def _check_run(run: Mapping[str, Any]) -> None:
    """Read all those values of a run that other values depend on.

    Args:
        run: columns by name; a brief list lacks some.

    Raises:
        ValueError: a value cannot be read.
    """
    try:
        check_key(run["key"])
        Status(run["status"])
        check_spec(run["spec"])
        spec = run["spec"]
        names = spec.names if isinstance(spec, Spec) else run_names(spec)
        if names["key"] == run["key"]:  # so the spec is right
            for name, expected in names.items():
                if run.get(name, expected) != expected:
                    raise ValueError(f"its {name} {run[name]!r:.40} does not follow from its spec")
        check_seconds(run.get("seconds", {}))
        check_numbers(run.get("baselines", {}))
        check_metrics(run.get("metrics"))
    except KeyError as error:
        raise ValueError(f"it has no {error}") from error
    except (ValueError, TypeError, LookupError, AttributeError, ArithmeticError) as error:
        raise ValueError(str(error)) from error
    if run["iterations_per_epoch"] < 1:
        raise ValueError(f"{run['iterations_per_epoch']} iterations per epoch")


def _check_trace(trace: Mapping[str, Any]) -> None:
    open_block(trace["vectors"])


_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    Run.__tablename__: _check_run,
    Environment.__tablename__: _check_environment,
    StoredTrace.__tablename__: _check_trace,
}
"""Checks of rows whose columns can each be read, by table; they raise ValueError."""


@event.listens_for(Run, "load")
@event.listens_for(Environment, "load")
def _check_loaded(row: Run | Environment, _: object) -> None:
    """Refuse a broken row whenever it is loaded, so that no command works with half a run."""
    _CHECKS[row.__tablename__](vars(row))
