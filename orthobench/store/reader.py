"""Read a database. Every method is one transaction, and returns plain records."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager, suppress
from types import MappingProxyType
from typing import Any, Self, TypeVar, cast

from sqlalchemy import Engine, Row, func, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, defer, lazyload, selectinload, subqueryload

from orthobench.errors import UsageError
from orthobench.store.result import MetricValue, Trace
from orthobench.store.row_checks import refusing_damage
from orthobench.store.server import DatabaseServer
from orthobench.store.sqlite import fold, log_size
from orthobench.store.tables import (
    Benchmark,
    Run,
    Segment,
    Series,
    Source,
    StoredMetric,
    StoredTrace,
    Tag,
    Weights,
)
from orthobench.system.location import Location

T = TypeVar("T")


class Reader:
    """A database to read. Its runs are plain records, detached from the session."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.server: DatabaseServer | None = None
        if engine.dialect.name == "postgresql":
            self.server = DatabaseServer(engine)

    @property
    def location(self) -> Location:
        """The path or URL of the database."""
        return Location.of_database(self.engine.url)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections, and fold the log of a SQLite file."""
        try:
            self.fold()
        finally:
            self.engine.dispose()

    def fold(self) -> None:
        """Move the rows of a SQLite file's write-ahead log into the file, unless other processes are busy."""
        file = self.location.file
        if file is not None and log_size(file):
            with suppress(sqlite3.Error, SQLAlchemyError), closing(self.engine.raw_connection()) as connection:
                fold(cast(sqlite3.Connection, connection.driver_connection), file)

    @contextmanager
    def waiting(self, should_stop: Callable[[], bool]) -> Iterator[None]:
        """Let waits for a lost server end, inside the block, as soon as `should_stop` returns True."""
        if self.server is None:
            yield
            return
        self.server.stop_waiting, before = should_stop, self.server.stop_waiting
        try:
            yield
        finally:
            self.server.stop_waiting = before

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with refusing_damage(self.engine), self._with_retries(self._begin_reading) as session:
            yield session

    @contextmanager
    def snapshot(self) -> Iterator[Session]:
        """Read from one state of the database, whatever other processes write in the meantime."""
        # PostgreSQL needs to be told, because its default gives each statement the newest rows;
        # a transaction of SQLite is a snapshot.
        options = {} if self.server is None else {"isolation_level": "REPEATABLE READ"}
        with refusing_damage(self.engine), self._with_retries(lambda: self._begin_reading(options)) as session:
            yield session

    def _begin_reading(self, options: Mapping[str, Any] = MappingProxyType({})) -> Session:
        # Not expired, because the records are read long after their session has ended.
        session = Session(self.engine, expire_on_commit=False)
        try:
            # Begun now and not with the first query, because only this function is repeated if the server is lost.
            session.connection(execution_options=dict(options))
        except BaseException:
            session.close()
            raise
        return session

    def _with_retries(self, work: Callable[[], T]) -> T:
        return work() if self.server is None else self.server.with_retries(work)

    def sources(self, digests: Sequence[str]) -> dict[str, bytes]:
        """Return the stored files of plugins with these hashes."""
        with self._read() as session:
            rows = session.scalars(select(Source).where(Source.digest.in_(digests)))
            return {row.digest: row.content for row in rows}

    def last_iteration(self, run_id: int) -> int:
        """Return the iteration of a run's last metric row; -1 without rows."""
        with self._read() as session:
            last = session.scalar(select(func.max(StoredMetric.iteration)).where(StoredMetric.run_id == run_id))
            return -1 if last is None else last

    def find(self, key: str) -> Run | None:
        """Return the run with exactly this key, or None."""
        with self._read() as session:
            return session.scalar(select(Run).where(Run.key == key))

    def get(self, prefix: str) -> Run:
        """Return the only run whose key begins with this prefix.

        Raises:
            UsageError: no run or several runs have this prefix.
        """
        with self._read() as session:
            # Escaped because % and _ are wildcards of LIKE; two rows, because they
            # suffice to see that a prefix is ambiguous.
            runs = session.scalars(select(Run).where(Run.key.startswith(prefix, autoescape=True)).limit(2)).all()
        if not runs:
            raise UsageError(f"there is no run '{prefix}': `orthobench ls` lists them")
        if len(runs) > 1:
            raise UsageError(f"'{prefix}' is ambiguous, because several keys begin with it: give more digits")
        return runs[0]

    def runs(
        self,
        *,
        task: str | None = None,
        model: str | None = None,
        status: str | None = None,
        seed: int | None = None,
        tag: str | None = None,
        keys: Sequence[str] | None = None,
        brief: bool = False,
    ) -> list[Run]:
        """Return the runs that match all filters, in the order of their start.

        The number of SQL statements does not grow with the number of runs, which share the records of their
        environments. With `brief` the runs lack `environment`, `metrics`, `baselines` and `seconds`, which a list does
        not show.
        """
        # Not `selectinload`, because that asks for the tags of 500 runs at a time.
        query = select(Run).options(subqueryload(Run.tag_rows)).order_by(Run.id)
        if brief:
            unread = (Run.metrics, Run.baselines, Run.seconds)
            query = query.options(lazyload(Run.environment), lazyload(Run.segment_rows))
            query = query.options(*(defer(column, raiseload=True) for column in unread))
        else:
            query = query.options(selectinload(Run.environment), subqueryload(Run.segment_rows))
        filters = {Run.task: task, Run.model: model, Run.status: status, Run.seed: seed}
        for column, value in filters.items():
            if value is not None:
                query = query.where(column == value)
        if tag is not None:
            query = query.where(Run.tag_rows.any(Tag.name == tag))
        if keys is not None:
            query = query.where(Run.key.in_(keys))
        with self._read() as session:
            return list(session.scalars(query))

    def stamps(self) -> list[Row[tuple[Any, ...]]]:
        """Return id, key, status and what else changes with a run, such as its tags, in the order of their start.

        This is a small part of what `runs` reads.
        """
        tags = select(func.aggregate_strings(Tag.name, ",")).where(Tag.run_id == Run.id).scalar_subquery()
        query = select(Run.id, Run.key, Run.status, Run.iterations, Run.updated_at, Run.write_token, tags)
        with self._read() as session:
            return list(session.execute(query.order_by(Run.id)))

    def metrics(
        self,
        run_ids: Sequence[int],
        split: str | None = None,
        name: str | None = None,
        iteration: int | None = None,
    ) -> list[MetricValue]:
        """Return the metric values of these runs, sorted by run, split, name and iteration.

        Values that are not finite are restored from their `kind`.
        """
        rows = self.metric_values(run_ids, split=split, name=name, iteration=iteration)
        return [MetricValue(split, name, epoch, at, value, run) for run, split, name, epoch, at, value in rows]

    def metric_values(
        self,
        run_ids: Sequence[int],
        since: int = 0,
        split: str | None = None,
        name: str | None = None,
        iteration: int | None = None,
    ) -> list[tuple[int, str, str, int, int, float]]:
        """Return run id, split, name, epoch, iteration and value of each metric value, in the order of `metrics`.

        The rows are plain tuples, because a report reads hundreds of thousands.

        Args:
            since: the first iteration.
            split: restrict to "train", "test", "valid" or "probe".
            name: restrict to this metric.
            iteration: restrict to this iteration.
        """
        row = StoredMetric
        query = select(row.run_id, Series.split, Series.name, row.epoch, row.iteration, row.value, row.kind)
        # An outer join, because a value whose series is lost should be noticed instead of missing.
        query = query.join_from(row, Series, isouter=True).where(row.run_id.in_(run_ids))
        if since:
            query = query.where(row.iteration >= since)
        for column, value in {Series.split: split, Series.name: name, row.iteration: iteration}.items():
            if value is not None:
                query = query.where(column == value)
        with self._read() as session:
            return [
                (run, split, name, epoch, iteration, float(kind or "nan") if value is None else value)
                for run, split, name, epoch, iteration, value, kind in session.execute(
                    query.order_by(row.run_id, Series.split, Series.name, row.iteration)
                )
            ]

    def traces(self, run_ids: Sequence[int], iteration: int | None = None, since: int = 0) -> list[Trace]:
        """Return the vectors of these runs from iteration `since` on, sorted by run, name and iteration."""
        query = select(StoredTrace).where(StoredTrace.run_id.in_(run_ids))
        if since:
            query = query.where(StoredTrace.iteration >= since)
        if iteration is not None:
            query = query.where(StoredTrace.iteration == iteration)
        with self._read() as session:
            traces = [
                Trace(name, row.epoch, row.iteration, values, row.run_id)
                for row in session.scalars(query)
                for name, values in row.vectors.items()
            ]
        return sorted(traces, key=lambda trace: (trace.run_id, trace.name, trace.iteration))

    def segments(self, run_ids: Sequence[int]) -> list[Segment]:
        """Return the segments of these runs, sorted by run and iteration."""
        query = select(Segment).where(Segment.run_id.in_(run_ids)).order_by(Segment.run_id, Segment.iteration)
        with self._read() as session:
            return list(session.scalars(query))

    def weights(self, run_ids: Sequence[int] | None = None) -> list[Weights]:
        """Return the records of kept files, of these runs or of all, sorted by run and kind."""
        query = select(Weights).order_by(Weights.run_id, Weights.kind)
        if run_ids is not None:
            query = query.where(Weights.run_id.in_(run_ids))
        with self._read() as session:
            return list(session.scalars(query))

    def newest(self) -> tuple[Any, ...]:
        """Return numbers, at least one of which differs after every change that a report would show."""
        runs = select(func.count(), func.max(Run.updated_at), func.max(Run.id), func.sum(Run.iterations))
        with self._read() as session:
            return (
                *session.execute(runs).one(),
                session.scalar(select(func.max(StoredMetric.id))),
                session.scalar(select(func.count()).select_from(Tag)),
                session.scalar(select(func.max(Benchmark.id))),
            )

    def benchmarks(self, name: str | None = None) -> list[Benchmark]:
        """Return the benchmarks, or only those with this name, oldest first."""
        query = select(Benchmark).order_by(Benchmark.id)
        if name is not None:
            query = query.where(Benchmark.name == name)
        with self._read() as session:
            return list(session.scalars(query))
