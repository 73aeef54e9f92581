"""Checks of a database: its file, its schema and its rows.

A damaged database is refused: nothing is written to it, and a value that cannot be read ends a command with one line.
SQLite notices damaged pages, but neither a changed text or number nor a value of the wrong type. The types of the
columns refuse such values (`orthobench.store.column_types`), and the records of a run and of its environment are
checked when they are loaded. `faults_in` reads every row, for `db info` and before a merge. `orthobench db repair`
copies the rows that can be read into a new file (`orthobench.store.repair`).
"""

from __future__ import annotations

import hashlib
import math
import operator
import sqlite3
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Engine,
    Float,
    Integer,
    String,
    Table,
    and_,
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
from sqlalchemy.engine import Dialect
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from orthobench.errors import DamagedError, first_line
from orthobench.metric import Metric
from orthobench.settings import merged_settings, run_names
from orthobench.store.blocks import open_block
from orthobench.store.column_types import WORDS, Block, NotFinite
from orthobench.store.result import CLOCK, EVENTS, Status, check_key
from orthobench.store.specs import Spec
from orthobench.store.sqlite import (
    RESTORE,
    SHOWN_PROBLEMS,
    connect,
    damaged,
    primary_code,
    problem_of,
    translated_errors,
)
from orthobench.store.tables import (
    VERSION_TABLE,
    Base,
    Environment,
    Run,
    Series,
    Source,
    StoredMetric,
    StoredTrace,
)
from orthobench.system.location import Location

CHECK_SECONDS = 5.0
"""The longest check of a file before it is written to; a larger file is checked only in part."""
UNREADABLE = (ValueError, TypeError, LookupError, AttributeError, ArithmeticError)
"""What a value of another type or form raises where it is read."""

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
def refusing_damage(engine: Engine) -> Iterator[None]:
    """Refuse a database if the block, which only reads rows, finds a value that cannot be read.

    Raises:
        DamagedError: it finds one.
    """
    try:
        yield
    except UNREADABLE as error:
        raise damaged(Location.of_database(engine.url), printable(first_line(error))) from error


def refuse_faults(engine: Engine) -> None:
    """Refuse a database that is damaged or has a row that cannot be read.

    Raises:
        DamagedError: it is, or has one.
    """
    if problems := problems_of(engine):
        raise damaged(Location.of_database(engine.url), *problems)


def problems_of(engine: Engine, tables: Collection[str] | None = None) -> list[str]:
    """Read every row of a database, and return the faults; a server checks its own files.

    Args:
        tables: read only these tables, and leave out SQLite's check of its whole file.
    """
    whole = engine.dialect.name == "sqlite" and tables is None
    try:
        with engine.connect() as connection:
            lines = connection.execute(text("PRAGMA integrity_check")).scalars().all() if whole else ()
            damages = [str(line) for line in lines if line != "ok"]
            return [*damages, *map(str, faults_in(connection, tables))]
    except (DamagedError, ValueError) as error:
        return [problem_of(error)]


def faults_in(connection: Connection, tables: Collection[str] | None = None) -> Iterator[Fault]:
    """Yield the rows of these tables, or of all, that cannot be read or refer to a missing row.

    A server itself refuses values of the wrong type and references to missing rows. On a server only the tables with
    JSON, vectors or words, which are those with `id`, are therefore checked.

    If all rows can be read, and those of runs and metrics are among them, runs that contradict their curves are
    faults, too.

    Raises:
        DamagedError: SQLite cannot read its file.
    """
    read: set[str] = set()
    for table in Base.metadata.sorted_tables:
        columns = _readable_columns(connection, table)
        if not columns or (tables is not None and table.name not in tables):
            continue
        faults = [*_unreadable(connection, table, columns), *_orphans(connection, table)]
        yield from faults
        if not faults:
            read.add(table.name)
    # Not with a broken row, because that may be what a run and its curve differ by.
    if read >= {Run.__tablename__, StoredMetric.__tablename__, Series.__tablename__}:
        yield from _contradictions(connection)


def _contradictions(connection: Connection) -> Iterator[Fault]:
    """Yield the runs with a result whose columns contradict their metric rows.

    The last row is at the run's last iteration. The test at that iteration is the final value, and the test at
    `best_iteration` the best value, and no test is better if the tests judge the run. A missing test says nothing.
    """
    curve = select(StoredMetric).join(Series).join(Run).where(Series.split == "test", Series.name == Run.metric)
    tests, at_end, at_best = (curve.subquery() for _ in range(3))
    last = select(StoredMetric.run_id, func.max(StoredMetric.iteration).label("iteration"))
    ends = last.group_by(StoredMetric.run_id).subquery()
    least = select(tests.c.run_id, func.min(tests.c.value).label("low"), func.max(tests.c.value).label("high"))
    extremes = least.group_by(tests.c.run_id).subquery()
    names = ("key", "goal", "iterations", "final_value", "best_value")
    query = (
        select(
            Run.id,
            *(getattr(Run, name) for name in names),
            ends.c.iteration.label("last"),
            *(at_end.c.iteration.label("ends"), at_end.c.value.label("final")),
            *(at_best.c.iteration.label("has_best"), at_best.c.value.label("best")),
            *(extremes.c.low, extremes.c.high),
        )
        .join(ends, ends.c.run_id == Run.id)
        .outerjoin(at_end, and_(at_end.c.run_id == Run.id, at_end.c.iteration == Run.iterations))
        .outerjoin(at_best, and_(at_best.c.run_id == Run.id, at_best.c.iteration == Run.best_iteration))
        .outerjoin(extremes, extremes.c.run_id == Run.id)
        .where(Run.status.in_([Status.FINISHED, Status.DIVERGED]))
    )
    for run in connection.execute(query):
        optimum, better = (run.low, operator.lt) if run.goal == "min" else (run.high, operator.gt)
        reason = None
        if run.last != run.iterations:
            reason = f"it has {run.iterations} iterations, and its last metric is at {run.last}"
        elif run.ends is not None and run.final != _finite(run.final_value):
            reason = f"its final value is {run.final_value!r}, and its last test {run.final!r}"
        elif run.has_best is not None and run.best != _finite(run.best_value):
            reason = f"its best value is {run.best_value!r}, and its test at that iteration {run.best!r}"
        elif (
            optimum is not None
            and (run.best_value is None or better(optimum, run.best_value))
            and _judged_by_tests(connection, run.id)
        ):
            reason = f"its best value is {run.best_value!r}, and its best test {optimum!r}"
        if reason is not None:
            yield Fault(Run.__tablename__, run.id, f"run {run.key}", reason)


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _judged_by_tests(connection: Connection, row: int) -> bool:
    spec = connection.execute(select(Run.spec).where(Run.id == row)).scalar_one()
    return bool(spec["training"].get("judged_by", "test") == "test")


def _readable_columns(connection: Connection, table: Table) -> list[Column[Any]]:
    """Return the columns to check: all of a server's table, or those that exist in a file with an older schema."""
    if connection.dialect.name != "sqlite":
        return list(table.columns) if "id" in table.columns else []
    stored = _stored_columns(connection, table)
    return [column for column in table.columns if column.name in stored]


def _unreadable(connection: Connection, table: Table, columns: Sequence[Column[Any]]) -> Iterator[Fault]:
    """Yield the rows of a table that cannot be read."""
    on_server = connection.dialect.name != "sqlite"
    number: ColumnElement[int] = literal_column("id" if on_server else "rowid")  # tags and segments have no id
    query = select(number, *(type_coerce(each, NullType()) for each in columns)).select_from(table).order_by(number)
    is_suspect = _suspect(connection, columns)
    if is_suspect is not None:
        query = query.where(is_suspect)
    problem = _row_problem(table, [column.name for column in columns], connection.dialect)
    driver = connection.connection.driver_connection
    if isinstance(driver, sqlite3.Connection):
        driver.text_factory = text_or_bytes
    try:
        for row, *values in connection.execute(query):
            if reason := problem(values):
                yield Fault(table.name, row, _row_name(connection, table, row), reason)
    finally:
        if isinstance(driver, sqlite3.Connection):
            driver.text_factory = str


def text_or_bytes(content: bytes) -> str | bytes:
    """Return a text of SQLite; if it is not UTF-8, its bytes, so that the rest of its row can be read."""
    try:
        return content.decode()
    except UnicodeDecodeError:
        return content


def _row_problem(table: Table, names: Sequence[str], dialect: Dialect) -> Callable[[Sequence[Any]], str | None]:
    """Return the function that returns why a row of a table cannot be read; None if it can.

    Args:
        names: the columns of the values that the function takes, as the driver returns them.
    """
    readers = [_reader(table.columns[name].type, dialect) for name in names]
    check = _CHECKS.get(table.name, lambda row: None)

    def problem(values: Sequence[Any]) -> str | None:
        try:
            read = [value if reader is None else reader(value) for reader, value in zip(readers, values, strict=True)]
            check(dict(zip(names, read, strict=True)))
        except UNREADABLE as error:
            return printable(first_line(error))
        return None

    return problem


def _reader(kind: TypeEngine[Any], dialect: Dialect) -> Callable[[Any], Any] | None:
    """Return the function that reads a value of a column as the driver returns it; None if nothing is to check."""
    # Vectors are left packed, because unpacking takes longer than their check. A server checks its own types.
    if isinstance(kind, Block) or (dialect.name != "sqlite" and not isinstance(kind, TypeDecorator)):
        return None
    return kind.dialect_impl(dialect).result_processor(dialect, None)


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


def printable(text: str) -> str:
    """Return a text of a damaged file as one line for a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in " ".join(text.split()))[:200]


def _orphans(connection: Connection, table: Table) -> Iterator[Fault]:
    """Yield the rows that refer to a missing row; a server has none."""
    if connection.dialect.name == "sqlite":
        for _, row, parent, _ in connection.exec_driver_sql(f'PRAGMA foreign_key_check("{table.name}")').all():
            yield Fault(table.name, row, _row_name(connection, table, row), f"its {parent} is missing")


def _row_name(connection: Connection, table: Table, row: int) -> str:
    """Return the name of a row for the user: the run's key, or the row's number."""
    if table is Run.__table__:
        # As bytes, because the broken value may be the key itself, in no valid encoding.
        content = "CAST(key AS BLOB)" if connection.dialect.name == "sqlite" else "convert_to(key, 'UTF8')"
        key = connection.exec_driver_sql(f"SELECT {content} FROM run WHERE id = {row}").scalar()
        if shown := printable(bytes(key or b"").decode(errors="replace")):
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
    """Refuse a SQLite file in which a view or a virtual table has the name of a table: reading it may never end.

    Raises:
        DamagedError: it has one.
    """
    if engine.dialect.name != "sqlite":
        return
    names = [VERSION_TABLE, *Base.metadata.tables]
    # By its text, because that decides what SQLite creates; no table of ours has the word in its definition.
    query = "SELECT name, type FROM sqlite_master WHERE type = 'view' OR sql LIKE '%virtual%'"
    with engine.connect() as connection:
        found = [(str(name), str(kind)) for name, kind in connection.execute(text(query))]
    if problems := [
        f"its {name} is a {'view' if kind == 'view' else 'virtual table'}, not a table"
        for name, kind in found
        if name.lower() in names
    ]:
        raise damaged(Location.of_database(engine.url), *problems, fix=RESTORE)


def integrity_problems(file: Path, *, immutable: bool = False) -> list[str]:
    """Return what SQLite's full check finds in a file; `immutable` is as in `connect`."""
    try:
        return _checked_by(file, "integrity_check", immutable=immutable)
    except DamagedError as error:
        return [problem_of(error)]


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
        if not (run["task"] + run["model"] + run["metric"]).isprintable():
            raise ValueError("its task, model or metric has characters that control a terminal")
        check_spec(run["spec"])
        spec = run["spec"]
        names = spec.names if isinstance(spec, Spec) else run_names(spec)
        if names["key"] == run["key"]:  # so the spec is right
            for name, expected in (names | {name: spec[name] for name in ("task", "model", "seed")}).items():
                if run.get(name, expected) != expected:
                    raise ValueError(f"its {name} {run[name]!r:.40} does not follow from its spec")
        check_seconds(run.get("seconds", {}))
        check_numbers(run.get("baselines", {}))
        check_metrics(run.get("metrics"))
        if (declared := run.get("metrics")) and declared.get(run["metric"], {}).get("goal") != run["goal"]:
            raise ValueError(f"its task declares no metric {run['metric']!r:.40} with the goal {run['goal']!r:.40}")
    except KeyError as error:
        raise ValueError(f"it has no {error}") from error
    except UNREADABLE as error:
        raise ValueError(str(error)) from error
    if run["iterations_per_epoch"] < 1:
        raise ValueError(f"{run['iterations_per_epoch']} iterations per epoch")


def _check_trace(trace: Mapping[str, Any]) -> None:
    open_block(trace["vectors"])


def _check_source(source: Mapping[str, Any]) -> None:
    if hashlib.sha256(source["content"]).hexdigest() != source["digest"]:
        raise ValueError(f"it is not the file with the SHA-256 {source['digest']:.40}")


_CHECKS: dict[str, Callable[[Mapping[str, Any]], None]] = {
    Run.__tablename__: _check_run,
    Environment.__tablename__: _check_environment,
    StoredTrace.__tablename__: _check_trace,
    Source.__tablename__: _check_source,
}
"""Checks of rows whose columns can each be read, by table; they raise ValueError."""


@event.listens_for(Run, "load")
@event.listens_for(Environment, "load")
def _check_loaded(row: Run | Environment, _: object) -> None:
    """Refuse a broken row whenever it is loaded, so that no command works with half a run."""
    try:
        _CHECKS[row.__tablename__](vars(row))
    except ValueError as error:
        name = f"run {row.key:.40}" if isinstance(row, Run) else f"row {row.id} of table {row.__tablename__}"
        raise ValueError(f"{name}: {error}") from error
