"""Checks of single rows, which may be a stranger's: their values, and what they say of each other.

SQLite keeps any value in any column. The types of the columns refuse values that none of ours can have
(`orthobench.store.column_types`), and the records of a run and of its environment are checked when they are loaded. So
a value that cannot be read ends a command with one line. `faults_in` reads every row, before a merge and for `db info`.
"""

from __future__ import annotations

import hashlib
import math
import operator
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    literal_column,
    or_,
    select,
    type_coerce,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.types import NullType, TypeDecorator, TypeEngine

from orthobench.errors import first_line
from orthobench.metric import Metric
from orthobench.settings import merged_settings, spec_columns
from orthobench.store.blocks import open_block
from orthobench.store.column_types import WORDS, Block, NotFinite
from orthobench.store.damage import integrity_problems, stored_columns
from orthobench.store.result import CLOCK, EVENTS, Status, check_key
from orthobench.store.sqlite import CORRECT, damaged
from orthobench.store.tables import Base, Environment, Run, Series, Source, StoredMetric, StoredTrace
from orthobench.system.location import Location

UNREADABLE = (ValueError, TypeError)
"""What the type of a column raises for a value of another type or form."""
STRANGE = (*UNREADABLE, LookupError, AttributeError, ArithmeticError)
"""What a record of any other form raises where a part of it is looked up."""


@contextmanager
def refusing_damage(engine: Engine) -> Iterator[None]:
    """Refuse a database if the block, which only reads rows, finds a value that cannot be read.

    Raises:
        DamagedError: it finds one.
    """
    try:
        yield
    except UNREADABLE as error:
        raise damaged(Location.of_database(engine.url), first_line(error), fix=CORRECT) from error


def refuse_faults(engine: Engine) -> None:
    """Refuse a database that is damaged or has a row that cannot be read.

    Raises:
        DamagedError: it is, or has one.
    """
    location = Location.of_database(engine.url)
    if location.file is not None and (problems := integrity_problems(location.file)):
        raise damaged(location, *problems)
    with engine.connect() as connection:
        if faults := list(faults_in(connection)):
            raise damaged(location, *faults, fix=CORRECT)


def faults_in(connection: Connection, tables: Collection[str] | None = None) -> Iterator[str]:
    """Yield the faults of the rows of these tables, or of all: values that cannot be read, and missing rows.

    If all rows of all tables can be read, runs that contradict their curves are faults, too. A server itself refuses
    values of the wrong type and references to missing rows. There only the tables with JSON, vectors or words, which
    are those with `id`, are therefore checked.

    Raises:
        DamagedError: SQLite cannot read its file.
    """
    is_sound = tables is None
    for table in Base.metadata.sorted_tables:
        columns = _readable_columns(connection, table)
        if columns and (tables is None or table.name in tables):
            for fault in (*_unreadable(connection, table, columns), *_orphans(connection, table)):
                is_sound = False
                yield fault
    if is_sound:  # not with a broken row, because that may be what a run and its curve differ by
        yield from _contradictions(connection)


def _contradictions(connection: Connection) -> Iterator[str]:
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
            yield f"run {run.key}: {reason}"


def _finite(value: float | None) -> float | None:
    return None if value is None or math.isinf(value) else value


def _judged_by_tests(connection: Connection, row: int) -> bool:
    spec = connection.execute(select(Run.spec).where(Run.id == row)).scalar_one()
    return bool(spec["training"].get("judged_by", "test") == "test")


def _readable_columns(connection: Connection, table: Table) -> list[Column[Any]]:
    """Return the columns to check: all of a server's table, or those that exist in a file with an older schema."""
    if connection.dialect.name != "sqlite":
        return list(table.columns) if "id" in table.columns else []
    stored = stored_columns(connection, table)
    return [column for column in table.columns if column.name in stored]


def _unreadable(connection: Connection, table: Table, columns: Sequence[Column[Any]]) -> Iterator[str]:
    """Yield the rows of a table that cannot be read, each with the reason."""
    on_server = connection.dialect.name != "sqlite"
    number: ColumnElement[int] = literal_column("id" if on_server else "rowid")  # tags and segments have no id
    query = select(number, *(type_coerce(each, NullType()) for each in columns)).select_from(table).order_by(number)
    is_suspect = _suspect(connection, columns)
    if is_suspect is not None:
        query = query.where(is_suspect)
    names = [column.name for column in columns]
    readers = [_reader(column.type, connection.dialect) for column in columns]
    check = _CHECKS.get(table.name, lambda row: None)
    for row, *values in connection.execute(query):
        try:
            read = [value if reader is None else reader(value) for reader, value in zip(readers, values, strict=True)]
            check(dict(zip(names, read, strict=True)))
        except STRANGE as error:
            key = dict(zip(names, values, strict=True)).get("key")
            yield f"{f'row {row} of table {table.name}' if key is None else f'run {key}':.60}: {_reason(error)}"


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


def _orphans(connection: Connection, table: Table) -> Iterator[str]:
    """Yield the rows that refer to a missing row; a server has none."""
    if connection.dialect.name == "sqlite":
        for _, row, parent, _ in connection.exec_driver_sql(f'PRAGMA foreign_key_check("{table.name}")').all():
            yield f"row {row} of table {table.name}: its {parent} is missing"


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
    check_facts(environment.get("facts", {}))


def _check_run(run: Mapping[str, Any]) -> None:
    """Read all those values of a run that other values depend on.

    Args:
        run: columns by name; a brief list lacks some.
    """
    check_key(run["key"])
    Status(run["status"])
    if not (run["task"] + run["model"] + run["metric"]).isprintable():
        raise ValueError("its task, model or metric has characters that control a terminal")
    check_spec(run["spec"])
    spec = run["spec"]
    for name, expected in spec_columns(spec).items():
        if run.get(name, expected) != expected:
            raise ValueError(f"its {name} {run[name]!r:.40} does not follow from its spec")
    check_seconds(run.get("seconds", {}))
    check_numbers(run.get("baselines", {}))
    check_metrics(run.get("metrics"))
    if (declared := run.get("metrics")) and declared.get(run["metric"], {}).get("goal") != run["goal"]:
        raise ValueError(f"its task declares no metric {run['metric']!r:.40} with the goal {run['goal']!r:.40}")
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
"""Checks of rows whose columns can each be read, by table; they raise one of `STRANGE`."""


def _reason(error: Exception) -> str:
    return f"it has no {error}" if isinstance(error, KeyError) else first_line(error)


@event.listens_for(Run, "load")
@event.listens_for(Environment, "load")
def _check_loaded(row: Run | Environment, _: object) -> None:
    """Refuse a broken row whenever it is loaded, so that no command works with half a run."""
    try:
        _CHECKS[row.__tablename__](vars(row))
    except STRANGE as error:
        name = f"run {row.key:.40}" if isinstance(row, Run) else f"row {row.id} of table {row.__tablename__}"
        raise ValueError(f"{name}: {_reason(error)}") from error
