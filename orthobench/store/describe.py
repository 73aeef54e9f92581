"""The description of a database with any schema, which is not upgraded."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, func, inspect, select, table

from orthobench.errors import DamagedError
from orthobench.store.damage import check_tables, integrity_problems
from orthobench.store.open import HEAD, open_engine, reach_database, schema_revision, without_runs
from orthobench.store.row_checks import faults_in
from orthobench.store.sqlite import log_of, problem_of
from orthobench.store.tables import VERSION_TABLE, Environment, Run, StoredMetric, StoredTrace
from orthobench.system.location import Location
from orthobench.system.processor import processor_name

MOST_ROWS = 1_000_000
"""The most rows that are all read without being asked for: about two seconds."""
LARGE = (StoredMetric.__tablename__, StoredTrace.__tablename__)
"""The tables that are not read in a larger database."""
MACHINE = "platform", "cpu", "cpu_model", "cores", "memory", "accelerator"  # the facts that identify a machine


@dataclass(frozen=True)
class Description:
    """A database: schema, size (None for a server), rows by table, runs, machines, problems and unread tables."""

    schema: str
    kind: str
    bytes: int | None
    rows: dict[str, int]
    runs: list[tuple[str, str]]  # key and status
    machines: list[dict[str, Any]]  # facts, and the number of runs
    problems: list[str]
    unread: list[str]


def describe_database(location: Location, check: bool = False) -> Description:
    """Return the description of a database.

    Args:
        check: read every row, also those of the tables `LARGE` in a database with more than `MOST_ROWS` rows.

    Raises:
        UsageError: the database does not exist or cannot be read.
    """
    engine, file = open_engine(location), location.file

    def read() -> Description:
        version = schema_revision(engine, location)
        if version is None:
            raise without_runs(location)
        if version == HEAD:
            check_tables(engine, location)
        with engine.connect() as connection:
            names = [name for name in inspect(connection).get_table_names() if name != VERSION_TABLE]
            rows = {
                name: connection.scalar(select(func.count()).select_from(table(name))) or 0 for name in sorted(names)
            }
            unread = [name for name in LARGE if name in rows and not check and sum(rows.values()) > MOST_ROWS]
            problems = [] if file is None or unread else integrity_problems(file)
            try:
                problems += faults_in(connection, [name for name in names if name not in LARGE] if unread else None)
            except DamagedError as error:
                problems.append(problem_of(error))
            return Description(
                version,
                f"{engine.dialect.name} {'.'.join(map(str, engine.dialect.server_version_info or ()))}",
                None if file is None else _size(file),
                rows,
                [(key, status) for key, status in connection.execute(select(Run.key, Run.status))],
                _machines(connection),
                problems,
                unread,
            )

    try:
        return reach_database(engine, location, read)
    finally:
        engine.dispose()


def _size(file: Path) -> int:
    """Return the bytes of the file and of its write-ahead log."""
    return sum(part.stat().st_size for part in (file, log_of(file)) if part.exists())


def _machines(connection: Connection) -> list[dict[str, Any]]:
    """Return the machines of the runs, by descending number of runs.

    Several environments may share a machine, because they also differ in versions and commits.
    """
    counts: dict[tuple[Any, ...], int] = {}
    query = select(Environment.facts, func.count()).join(Run).group_by(Environment.id)
    for facts, count in connection.execute(query):
        machine = tuple(facts.get(name) for name in MACHINE)
        counts[machine] = counts.get(machine, 0) + count
    ordered = sorted(counts.items(), key=lambda entry: -entry[1])
    machines = [dict(zip(MACHINE, machine, strict=True)) | {"runs": count} for machine, count in ordered]
    return [machine | {"processor": processor_name(machine)} for machine in machines]
