"""Write runs to a database. Every method is one transaction.

If the server is lost during a transaction, the transaction is retried, although its first attempt may have been
committed. Writes are therefore idempotent: each one sets the run's `write_token` to a random number, by which a retry
recognises itself. A different token shows that another process has taken over the run.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from contextlib import suppress
from typing import Any, TypeVar
from uuid import uuid4

from sqlalchemy import Engine, Update, delete, func, insert, select, tuple_, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from orthobench.errors import RunLockedError
from orthobench.store.reader import Reader
from orthobench.store.result import MetricRow, Status, TraceRow, WeightsRow
from orthobench.store.row_checks import refusing_damage
from orthobench.store.tables import (
    Benchmark,
    Environment,
    Run,
    Segment,
    Series,
    Source,
    StoredMetric,
    StoredTrace,
    Tag,
    Weights,
    facts_digest,
)

T = TypeVar("T")


class Store(Reader):
    """A database to read and write."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._writer = engine.execution_options(writes=True)
        self._tokens: dict[int, str] = {}  # the token of the last write, by run of this process

    def _write(self, work: Callable[[Session], T]) -> T:
        def transaction() -> T:
            # Not expired, because callers read the records after the commit.
            with Session(self._writer, expire_on_commit=False) as session, session.begin():
                return work(session)

        with refusing_damage(self.engine):
            return self._with_retries(transaction)

    def start(
        self,
        facts: Mapping[str, Any],
        environment: Mapping[str, Any],
        tags: Sequence[str] = (),
        sources: Mapping[str, bytes] | None = None,
    ) -> Run:
        """Create or update the record of a run that starts, with the status "running".

        Args:
            facts: columns of `Run`, among them the key; an existing run is updated.
            environment: the facts of the environment.
            tags: names to add; an existing run keeps its own.
            sources: the files of the run's plugins that are not built in, by their SHA-256.
        """
        token = uuid4().hex

        def enter(session: Session) -> Run:
            environment_row = self._environment(session, environment)
            run = session.scalar(select(Run).where(Run.key == facts["key"]))
            if run is None:
                run = Run(seconds={})
                session.add(run)
            for name, value in facts.items():
                setattr(run, name, value)
            run.status, run.message, run.environment, run.write_token = Status.RUNNING, None, environment_row, token
            # Now, because the tags need the run's number.
            session.flush()
            self._keep_sources(session, sources or {})
            self._tag(session, [run.id], tags)
            # Loaded here, because the caller reads the record outside of a session.
            session.refresh(run, ["tag_rows", "segment_rows"])
            return run

        run = self._write(enter)
        self._tokens[run.id] = token
        return run

    def tag(self, keys: Sequence[str], tags: Sequence[str]) -> None:
        """Add tags to the runs of these keys that exist; their other tags stay."""
        if not tags:
            return

        def add(session: Session) -> None:
            self._tag(session, session.scalars(select(Run.id).where(Run.key.in_(keys))).all(), tags)

        self._write(add)

    @staticmethod
    def _keep_sources(session: Session, sources: Mapping[str, bytes]) -> None:
        """Store the files that are new."""
        known = set(session.scalars(select(Source.digest).where(Source.digest.in_(sources))))
        for digest, content in sources.items():
            if digest not in known:
                with suppress(IntegrityError), session.begin_nested():  # another process may store the same file
                    session.add(Source(digest=digest, content=content))

    @staticmethod
    def _tag(session: Session, run_ids: Sequence[int], tags: Sequence[str]) -> None:
        for run_id in run_ids:
            for name in tags:
                with suppress(IntegrityError), session.begin_nested():  # another process may add the same tag
                    session.merge(Tag(run_id=run_id, name=name))

    def rewind(self, run_id: int, iteration: int, token: str) -> None:
        """Delete the rows after this iteration and the segments from it on, and begin a new segment there.

        A run resumes from its checkpoint, not from its last row.

        Args:
            iteration: the iteration of the checkpoint, or -1 if the run starts at its beginning.
            token: the new segment's write token, which no other segment has.

        Raises:
            RunLockedError: another process has taken over the run.
        """
        first = max(iteration, 0)

        def return_to(session: Session) -> None:
            run = self._own(session, run_id)
            for table in (StoredMetric, StoredTrace):
                session.execute(delete(table).where(table.run_id == run_id, table.iteration > iteration))
            session.execute(delete(Weights).where(Weights.run_id == run_id))
            if iteration < 0:
                run.continued_from = None
            session.execute(delete(Segment).where(Segment.run_id == run_id, Segment.iteration >= first))
            columns = {"environment_id": run.environment_id, "write_token": token}
            session.add(Segment(run_id=run_id, iteration=first, **columns))

        self._write(return_to)

    def log(
        self,
        run_id: int,
        metrics: Iterable[MetricRow],
        traces: Iterable[TraceRow],
        progress: Mapping[str, Any],
        segment_backend: str | None = None,
        weights: Iterable[WeightsRow] = (),
    ) -> None:
        """Add rows, and update the run's own columns (`progress`).

        Args:
            segment_backend: back ends used in the run's last segment; None leaves the stored ones.
            weights: the run's kept files, which replace the recorded ones; without any, the recorded ones stay.

        Raises:
            RunLockedError: another process has taken over the run.
        """
        rows, vectors = list(metrics), _trace_columns(run_id, traces)
        files = [{"run_id": run_id, **vars(row)} for row in weights]
        token = uuid4().hex

        def add(session: Session) -> None:
            run = self._own(session, run_id, token)
            if run.write_token == token:
                return  # committed before the server was lost
            if rows:
                series = self._series(session, {(row.split, row.name) for row in rows})
                session.execute(insert(StoredMetric), [_metric_columns(run_id, series, row) for row in rows])
            if vectors:
                session.execute(insert(StoredTrace), vectors)
            if files:
                session.execute(delete(Weights).where(Weights.run_id == run_id))
                session.execute(insert(Weights), files)
            for name, value in progress.items():
                setattr(run, name, value)
            run.write_token = token
            if segment_backend is not None:
                session.execute(_change_last_segment(run_id).values(backend=segment_backend))

        self._write(add)
        if run_id in self._tokens:
            self._tokens[run_id] = token
        if "status" in progress:  # the run has ended: fold the log, so that a copy of the file has its result
            self.fold()

    def set_environment(self, run_id: int, facts: Mapping[str, Any]) -> None:
        """Replace the environment of a run and of its last segment once more facts are known.

        Raises:
            RunLockedError: another process has taken over the run.
        """

        def replace(session: Session) -> None:
            run = self._own(session, run_id)
            run.environment = row = self._environment(session, facts)
            session.flush()
            session.execute(_change_last_segment(run_id).values(environment_id=row.id))

        self._write(replace)

    def update(self, run_id: int, changes: Mapping[str, Any]) -> None:
        """Change columns of a run.

        Raises:
            RunLockedError: another process has taken over the run.
        """
        self.log(run_id, [], [], changes)

    def delete(self, run_id: int) -> None:
        """Remove a run with all its rows."""
        self._write(lambda session: session.execute(delete(Run).where(Run.id == run_id)))

    def drop_weights(self, run_id: int, kinds: Sequence[str]) -> None:
        """Remove the records of a run's files of these kinds; the files stay."""
        chosen = delete(Weights).where(Weights.run_id == run_id, Weights.kind.in_(kinds))
        self._write(lambda session: session.execute(chosen))

    def fork(self, run_id: int, columns: Mapping[str, Any], logged: int, iteration: int) -> None:
        """Create a run with the rows and the segments that another run had at an iteration.

        Args:
            run_id: the other run.
            columns: columns of the new run that differ, among them its key; an existing run with this key stays.
            logged: the iteration of the newest rows to copy.
            iteration: the iteration before which the segments to copy began.
        """

        def copy(session: Session) -> None:
            if session.scalar(select(Run.id).where(Run.key == columns["key"])) is not None:
                return  # committed before the server was lost, or created by another process
            parent = session.get_one(Run, run_id)
            new = ("id", "created_at", "updated_at", "write_token")
            names = [column.name for column in Run.__table__.columns if column.name not in new]
            run = Run(**{name: getattr(parent, name) for name in names} | dict(columns))
            session.add(run)
            session.flush()
            for table in (StoredMetric, StoredTrace, Segment):
                own = [column for column in table.__table__.columns if column.name not in ("id", "run_id")]
                rows = select(*own).where(table.run_id == run_id)
                rows = rows.where(Segment.iteration < iteration if table is Segment else table.iteration <= logged)
                copies = [{"run_id": run.id, **row} for row in session.execute(rows).mappings()]
                if copies:
                    session.execute(insert(table), copies)

        self._write(copy)

    def add_benchmark(self, name: str, results: Mapping[str, Any], environment: Mapping[str, Any]) -> Benchmark:
        """Store the results of a benchmark (JSON) and its environment."""
        token = uuid4().hex

        def keep(session: Session) -> Benchmark:
            row = self._environment(session, environment)
            benchmark = session.scalar(select(Benchmark).where(Benchmark.write_token == token))
            if benchmark is None:
                benchmark = Benchmark(name=name, results=dict(results), environment=row, write_token=token)
                session.add(benchmark)
            return benchmark

        return self._write(keep)

    def _own(self, session: Session, run_id: int, token: str | None = None) -> Run:
        """Return a run to write to, unless its token is from another process.

        Args:
            token: the token of the current transaction, which a first attempt may have written.

        Raises:
            RunLockedError: another process has written to the run.
        """
        # Of the run alone, because runs share the row of their environment, and would wait for each other.
        run = session.get_one(Run, run_id, with_for_update={"of": Run})
        own_token = self._tokens.get(run_id)
        if own_token is not None and run.write_token not in (own_token, token):
            raise RunLockedError(f"run {run.key} has been taken over by another process: let that process finish it")
        return run

    @staticmethod
    def _environment(session: Session, facts: Mapping[str, Any]) -> Environment:
        """Return the environment's row, after inserting it if it is new."""
        digest = facts_digest(facts)
        known = select(Environment).where(Environment.digest == digest)
        row = session.scalar(known)
        if row is None:
            try:
                # In a savepoint, because PostgreSQL ends the whole transaction after a failed insert.
                with session.begin_nested():
                    row = Environment(digest=digest, facts=dict(facts))
                    session.add(row)
            except IntegrityError:  # another process has inserted it
                row = session.scalars(known).one()
        return row

    @staticmethod
    def _series(session: Session, names: Set[tuple[str, str]]) -> dict[tuple[str, str], int]:
        """Return the ids of series by split and name; new series are inserted."""
        known = select(Series.split, Series.name, Series.id).where(tuple_(Series.split, Series.name).in_(names))
        ids = {(split, name): number for split, name, number in session.execute(known)}
        for split, name in sorted(names - ids.keys()):  # in a fixed order, so that no two processes deadlock
            row = Series(split=split, name=name)
            try:
                with session.begin_nested():
                    session.add(row)
            except IntegrityError:  # another process has inserted it
                row = session.scalars(select(Series).where(Series.split == split, Series.name == name)).one()
            ids[split, name] = row.id
        return ids


def _change_last_segment(run_id: int) -> Update:
    newest = select(func.max(Segment.iteration)).where(Segment.run_id == run_id).scalar_subquery()
    return update(Segment).where(Segment.run_id == run_id, Segment.iteration == newest)


def _metric_columns(run_id: int, series: Mapping[tuple[str, str], int], row: MetricRow) -> dict[str, Any]:
    finite = math.isfinite(row.value)
    return {
        "run_id": run_id,
        "series_id": series[row.split, row.name],
        "epoch": row.epoch,
        "iteration": row.iteration,
        "value": row.value if finite else None,
        "kind": None if finite else str(row.value),
    }


def _trace_columns(run_id: int, traces: Iterable[TraceRow]) -> list[dict[str, Any]]:
    """Return a row for each iteration, with all its vectors."""
    vectors: dict[tuple[int, int], dict[str, Sequence[float]]] = {}
    for row in traces:
        vectors.setdefault((row.epoch, row.iteration), {})[row.name] = row.values
    return [
        {"run_id": run_id, "epoch": epoch, "iteration": iteration, "vectors": own}
        for (epoch, iteration), own in vectors.items()
    ]
