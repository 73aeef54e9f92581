"""Reading and writing runs. Every method is one transaction: what it wrote is there, whole, when it returns."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self

from sqlalchemy import Engine, delete, func, insert, select
from sqlalchemy.orm import Session

from orthobench.errors import UsageError
from orthobench.store.tables import Benchmark, Environment, Metric, Run, Status, Trace


@dataclass(frozen=True)
class MetricRow:
    """A number to log; split is "train", "test", "valid" or, for what a probe measured, "probe"."""

    split: str
    name: str
    epoch: int
    iteration: int
    value: float


@dataclass(frozen=True)
class TraceRow:
    """A vector to log."""

    name: str
    epoch: int
    iteration: int
    values: Sequence[float]


class Store:
    """One database. Runs it returns are detached: plain records to read."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self._writer = engine.execution_options(writes=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        self.engine.dispose()

    @contextmanager
    def _read(self) -> Iterator[Session]:
        with Session(self.engine, expire_on_commit=False) as session:
            yield session

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with Session(self._writer, expire_on_commit=False) as session, session.begin():
            yield session

    # Writing

    def start(self, facts: Mapping[str, Any], environment_digest: str, environment: Mapping[str, Any]) -> Run:
        """Enter a run as running, anew or again after it was cut off, and the environment it is in.

        `facts` are the columns of `Run`; those of a run that exists already are brought up to date.
        """
        with self._write() as session:
            place = self._place(session, environment_digest, environment)
            run = session.scalar(select(Run).where(Run.key == facts["key"]))
            if run is None:
                run = Run(seconds={})
                session.add(run)
            for name, value in facts.items():
                setattr(run, name, value)
            run.status, run.message, run.environment = Status.RUNNING, None, place
            return run

    def rewind(self, run_id: int, iteration: int) -> None:
        """Forget what was logged after this iteration: a run goes on from its checkpoint, not from its last row."""
        with self._write() as session:
            for table in (Metric, Trace):
                session.execute(delete(table).where(table.run_id == run_id, table.iteration > iteration))

    def log(
        self, run_id: int, metrics: Iterable[MetricRow], traces: Iterable[TraceRow], progress: Mapping[str, Any]
    ) -> None:
        """Add rows, and bring the run's own columns (`progress`) up to date."""
        with self._write() as session:
            if rows := [_metric_columns(run_id, row) for row in metrics]:
                session.execute(insert(Metric), rows)
            if vectors := [{"run_id": run_id, **vars(row)} for row in traces]:
                session.execute(insert(Trace), vectors)
            self._update(session, run_id, progress)

    def update(self, run_id: int, changes: Mapping[str, Any]) -> None:
        """Change columns of a run."""
        with self._write() as session:
            self._update(session, run_id, changes)

    def delete(self, run_id: int) -> None:
        """Remove a run with all its rows."""
        with self._write() as session:
            session.execute(delete(Run).where(Run.id == run_id))

    def add_benchmark(
        self, name: str, results: Mapping[str, Any], environment_digest: str, environment: Mapping[str, Any]
    ) -> Benchmark:
        """Keep what a benchmark found, and the environment it ran in; `results` hold what JSON does."""
        with self._write() as session:
            place = self._place(session, environment_digest, environment)
            benchmark = Benchmark(name=name, results=dict(results), environment=place)
            session.add(benchmark)
            return benchmark

    @staticmethod
    def _place(session: Session, digest: str, facts: Mapping[str, Any]) -> Environment:
        """The environment's row, entered if it is new."""
        place = session.scalar(select(Environment).where(Environment.digest == digest))
        if place is None:
            place = Environment(digest=digest, facts=dict(facts))
            session.add(place)
            session.flush()
        return place

    @staticmethod
    def _update(session: Session, run_id: int, changes: Mapping[str, Any]) -> None:
        run = session.get_one(Run, run_id)
        for name, value in changes.items():
            setattr(run, name, value)

    # Reading

    def last_iteration(self, run_id: int) -> int:
        """The iteration of the last row that was logged for a run; -1 if there is none."""
        with self._read() as session:
            last = session.scalar(select(func.max(Metric.iteration)).where(Metric.run_id == run_id))
            return -1 if last is None else last

    def find(self, key: str) -> Run | None:
        """The run of exactly this key."""
        with self._read() as session:
            return session.scalar(select(Run).where(Run.key == key))

    def get(self, prefix: str) -> Run:
        """The one run whose key begins so.

        Raises:
            UsageError: there is none, or more than one.
        """
        with self._read() as session:
            runs = session.scalars(select(Run).where(Run.key.startswith(prefix, autoescape=True)).limit(2)).all()
        if not runs:
            raise UsageError(f"there is no run '{prefix}': `orthobench ls` lists them")
        if len(runs) > 1:
            raise UsageError(f"'{prefix}' begins the names of several runs: give more of its digits")
        return runs[0]

    def runs(
        self,
        *,
        task: str | None = None,
        model: str | None = None,
        status: str | None = None,
        seed: int | None = None,
        keys: Sequence[str] | None = None,
    ) -> list[Run]:
        """The runs that fit all that is given, in the order they were started."""
        query = select(Run).order_by(Run.id)
        wanted = {Run.task: task, Run.model: model, Run.status: status, Run.seed: seed}
        for column, value in wanted.items():
            if value is not None:
                query = query.where(column == value)
        if keys is not None:
            query = query.where(Run.key.in_(keys))
        with self._read() as session:
            return list(session.scalars(query))

    def metrics(self, run_ids: Sequence[int], split: str | None = None, name: str | None = None) -> list[Metric]:
        """Numbers of these runs by run, split, name and iteration; those not finite come back as what they were."""
        query = select(Metric).where(Metric.run_id.in_(run_ids))
        if split is not None:
            query = query.where(Metric.split == split)
        if name is not None:
            query = query.where(Metric.name == name)
        query = query.order_by(Metric.run_id, Metric.split, Metric.name, Metric.iteration)
        with self._read() as session:
            rows = list(session.scalars(query))
        for row in rows:
            if row.value is None and row.kind is not None:
                row.value = float(row.kind)
        return rows

    def metric_values(self, run_ids: Sequence[int]) -> list[tuple[int, str, str, int, int, float]]:
        """Run, split, name, epoch, iteration and value of every number of these runs, in the order of `metrics`.

        Plain tuples: a report reads hundreds of thousands.
        """
        columns = (Metric.run_id, Metric.split, Metric.name, Metric.epoch, Metric.iteration, Metric.value, Metric.kind)
        query = select(*columns).where(Metric.run_id.in_(run_ids))
        query = query.order_by(Metric.run_id, Metric.split, Metric.name, Metric.iteration)
        with self._read() as session:
            return [
                (run, split, name, epoch, iteration, float(kind or "nan") if value is None else value)
                for run, split, name, epoch, iteration, value, kind in session.execute(query)
            ]

    def traces(self, run_ids: Sequence[int], name: str | None = None) -> list[Trace]:
        """Vectors of these runs by run, name and iteration."""
        query = select(Trace).where(Trace.run_id.in_(run_ids))
        if name is not None:
            query = query.where(Trace.name == name)
        with self._read() as session:
            return list(session.scalars(query.order_by(Trace.run_id, Trace.name, Trace.iteration)))

    def benchmarks(self, name: str | None = None) -> list[Benchmark]:
        """The benchmarks (of this name), oldest first."""
        query = select(Benchmark).order_by(Benchmark.id)
        if name is not None:
            query = query.where(Benchmark.name == name)
        with self._read() as session:
            return list(session.scalars(query))


def _metric_columns(run_id: int, row: MetricRow) -> dict[str, Any]:
    finite = math.isfinite(row.value)
    return {
        "run_id": run_id,
        **vars(row),
        "value": row.value if finite else None,
        "kind": None if finite else str(row.value),
    }
