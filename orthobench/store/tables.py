"""The tables. A change here needs a migration in `migrations/versions` (a test compares the two)."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby
from pathlib import PureWindowsPath
from typing import Any

from sqlalchemy import (
    BigInteger,
    DateTime,
    ForeignKey,
    Index,
    MetaData,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from orthobench.metric import Metric
from orthobench.store.column_types import (
    Block,
    JsonObject,
    Located,
    NotFinite,
    Number,
    PresentText,
    Text,
    WholeNumber,
)
from orthobench.store.result import (
    CPU_SECONDS,
    SEVERAL_MACHINES,
    UNTIMED,
    Status,
    is_timed,
    times_of_phases,
    wall_seconds,
)
from orthobench.system.cores import counts_cpu_time
from orthobench.system.location import Location
from orthobench.system.processor import machine_name

VERSION_TABLE = "orthobench_version"
"""The table in which Alembic records the schema's revision."""


def utc_now() -> datetime:
    """Return the current time in UTC, without a time zone because SQLite would lose it."""
    return datetime.now(UTC).replace(tzinfo=None)


Bytes = BigInteger().with_variant(WholeNumber, "sqlite")
"""A number of bytes; SQLite's integers have 64 bits anyway."""


class Base(DeclarativeBase):
    type_annotation_map = {
        dict[str, Any]: JsonObject,
        datetime: DateTime,
        int: WholeNumber,
        float: Number,
        str: Text,
        Location: Located,
    }
    metadata = MetaData(
        # Named by a rule, because a migration can change only a constraint whose name it knows.
        naming_convention={
            "ix": "ix_%(column_0_label)s",
            "uq": "uq_%(table_name)s_%(column_0_name)s",
            "fk": "fk_%(table_name)s_%(column_0_name)s_%(referred_table_name)s",
            "pk": "pk_%(table_name)s",
        }
    )


def facts_digest(facts: Mapping[str, Any]) -> str:
    """Return the hash of the facts of an environment, 16 hexadecimal digits."""
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


class Environment(Base):
    """An environment of runs: machine, versions and commit. Runs of the same environment share a row."""

    __tablename__ = "environment"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    facts: Mapped[dict[str, Any]]

    @property
    def machine(self) -> str:
        """The name of the accelerator, or of the processor of a run without one."""
        return machine_name(self.facts)

    @property
    def facts_for_others(self) -> dict[str, Any]:
        """The facts with the names of plugin files in place of their paths."""
        plugins = [
            {**plugin, "path": PureWindowsPath(plugin["path"]).name} if plugin.get("path") else dict(plugin)
            for plugin in self.facts.get("plugins", ())
        ]
        return {**self.facts, "plugins": plugins} if plugins else dict(self.facts)

    @property
    def flat_facts(self) -> dict[str, Any]:
        """The facts with an entry for each package."""
        facts = dict(self.facts)
        packages = facts.pop("packages", {})
        return facts | {f"package {name}": version for name, version in packages.items()}


class Source(Base):
    """A file of a plugin that is not built in. An environment's record has the file's name and SHA-256 (`digest`)."""

    __tablename__ = "source"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    content: Mapped[bytes]


class Run(Base):
    """A run: its `spec` with the hash `key`, its progress, and a summary of its result.

    `environment` describes the last segment, and `write_token` names the last transaction that wrote to the run.
    `preset` is the preset of the last start, or None. `continued_from` is the key of the run whose training state this
    run began with, or None if it began with untrained weights.
    """

    __tablename__ = "run"

    id: Mapped[int] = mapped_column(primary_key=True)
    key: Mapped[str] = mapped_column(unique=True)
    variant: Mapped[str] = mapped_column(index=True)
    condition: Mapped[str] = mapped_column(index=True)
    task: Mapped[str] = mapped_column(index=True)
    model: Mapped[str] = mapped_column(index=True)
    seed: Mapped[int]
    preset: Mapped[str | None]
    spec: Mapped[dict[str, Any]]
    status: Mapped[str]
    message: Mapped[str | None]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    device: Mapped[str]
    backend: Mapped[str | None]
    parameter_count: Mapped[int]
    metric: Mapped[str]
    goal: Mapped[str]
    metrics: Mapped[dict[str, Any] | None]
    baselines: Mapped[dict[str, Any]]
    iterations: Mapped[int] = mapped_column(default=0)
    total_iterations: Mapped[int]
    iterations_per_epoch: Mapped[int]
    final_value: Mapped[float | None]
    best_value: Mapped[float | None]
    best_iteration: Mapped[int | None]
    seconds: Mapped[dict[str, Any]]
    peak_memory: Mapped[int | None] = mapped_column(Bytes)
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    updated_at: Mapped[datetime] = mapped_column(default=utc_now, onupdate=utc_now)
    write_token: Mapped[str | None]
    continued_from: Mapped[str | None]

    environment: Mapped[Environment] = relationship(lazy="joined")
    # Only for reading, because `Store` adds tags itself, in a way that two processes may do at once.
    tag_rows: Mapped[list[Tag]] = relationship(lazy="selectin", order_by="Tag.name", viewonly=True)
    segment_rows: Mapped[list[Segment]] = relationship(lazy="selectin", order_by="Segment.iteration", viewonly=True)

    @property
    def tags(self) -> list[str]:
        """The names that users gave the run, in alphabetical order; they do not belong to its spec."""
        return [row.name for row in self.tag_rows]

    @property
    def main_metric(self) -> Metric:
        """The declaration of the metric by which the run is compared."""
        return Metric.main(self.metric, self.goal, self.metrics)

    def declared(self, name: str) -> Metric | None:
        """Return the task's declaration of the metric with this name, if it has one."""
        record = (self.metrics or {}).get(name)
        return None if record is None else Metric.read(name, record)

    @property
    def solved_at(self) -> int | None:
        """The iteration at which the run stopped because the task was solved; None if it did not stop."""
        stops = self.spec["training"].get("solved_at") is not None
        stopped = self.status == Status.FINISHED and self.iterations < self.total_iterations
        return self.iterations if stops and stopped else None

    @property
    def is_final(self) -> bool:
        """Whether the run has a result, so that it is not trained again."""
        return Status(self.status).is_final

    @property
    def is_trial(self) -> bool:
        """Whether the run is a trial of a search that never uses the test data, and so has no result."""
        return bool(self.spec["training"].get("judged_by") == "validation_only")

    @property
    def is_judged_by_validation(self) -> bool:
        """Whether validation data choose among its tests, so that the last one may be better."""
        return bool(self.spec["training"].get("judged_by", "test") != "test")

    @property
    def best_test(self) -> float | None:
        """The best of its tests; None if validation data judge it."""
        return None if self.is_judged_by_validation else self.best_value

    @property
    def at_best_validation(self) -> float | None:
        """The test at its best validation; None if the tests judge it."""
        return self.best_value if self.is_judged_by_validation else None

    @property
    def epochs(self) -> float:
        return self.iterations / self.iterations_per_epoch

    def brief(self, status: str | None = None) -> dict[str, Any]:
        """Return the run as a row of a list of runs.

        Args:
            status: the status now, if the stored one is out of date.
        """
        return {
            "run": self.key,
            "task": self.task,
            "model": self.model,
            "seed": self.seed,
            "status": status or self.status,
            "epochs": round(self.epochs, 2),
            "metric": self.metric,
            "final": self.final_value,
            "best": self.best_test,
            "at_best_validation": self.at_best_validation,
            "parameters": self.parameter_count,
            "solved_at": self.solved_at,
            "tags": self.tags,
        }

    def __repr__(self) -> str:
        """Describe the run and its result in one line."""
        chosen = ("best", self.best_test), ("at best validation", self.at_best_validation)
        values = ((self.metric, self.final_value), *chosen)
        result = "".join(f", {name} {value:.4g}" for name, value in values if value is not None)
        return f"<run {self.key}: {self.task} {self.model}, seed {self.seed}, {self.status}{result}>"

    def _repr_html_(self) -> str:
        import pandas as pd

        own = {name: value for name, value in self.brief().items() if value not in (None, [])}
        return pd.DataFrame([own]).to_html(index=False, float_format="{:.4g}".format)

    @property
    def machines(self) -> list[str]:
        """The machines that have trained it, in order."""
        environments = [segment.environment for segment in self.segment_rows] or [self.environment]
        return list(dict.fromkeys(environment.machine for environment in environments))

    @property
    def trained_with(self) -> str:
        """Its back end and device, such as "cpu on cpu", or the back ends of its segments, such as "cuda, then cpu"."""
        names = [name for name, _ in groupby(segment.backend for segment in self.segment_rows) if name]
        return ", then ".join(names) if len(names) > 1 else f"{self.backend} on {self.device}"

    @property
    def has_cpu_time(self) -> bool:
        """Whether its times are CPU time (`counts_cpu_time`) and not the wall clock."""
        environments = [self.environment, *(segment.environment for segment in self.segment_rows)]
        is_countable = all(counts_cpu_time(self.device, each.facts.get("threads")) for each in environments)
        return is_countable and len(self.machines) == 1 and bool(self.seconds.get(CPU_SECONDS))

    @property
    def timed_on(self) -> str:
        """The machine and clock of its times, such as "AMD EPYC (26/2/1), CPU time": times compare only if equal."""
        return self.environment.machine + (", CPU time" if self.has_cpu_time else "")

    @property
    def wall_seconds(self) -> float:
        """The wall-clock seconds of all phases."""
        return wall_seconds(self.seconds)

    @property
    def own_seconds(self) -> float:
        """The seconds of all phases: its CPU time, or else the wall clock (`has_cpu_time`)."""
        return float(self.seconds[CPU_SECONDS]) if self.has_cpu_time else self.wall_seconds

    @property
    def training_seconds(self) -> float | None:
        """The seconds of training, without tests, probes and logging; None if they are not known.

        CPU time is measured over all phases, so a phase gets the share that it has of the wall clock.
        """
        training = self.phases.get("train")
        return training * self.own_seconds / self.wall_seconds if training else None

    @property
    def seconds_per_epoch(self) -> float | None:
        """The seconds of training per epoch (`training_seconds`); None if they are not known."""
        training = self.training_seconds
        return training / (self.iterations / self.iterations_per_epoch) if training and self.iterations else None

    @property
    def phases(self) -> dict[str, float]:
        """The wall-clock seconds by phase; empty if they are not known."""
        return {} if self.untimed else times_of_phases(self.seconds, self.device)

    @property
    def untimed(self) -> str:
        """Why the seconds of single phases are not known; empty if they are."""
        if len(self.machines) > 1:
            return SEVERAL_MACHINES
        return "" if is_timed(self.seconds, self.device) else UNTIMED


class Tag(Base):
    """A name that a user gave a run."""

    __tablename__ = "tag"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(primary_key=True, index=True)


class Segment(Base):
    """A part of a run, trained without interruption; `iteration` counts the iterations before it.

    The `write_token` identifies the process that wrote its rows. The back ends are None until the first evaluation.
    """

    __tablename__ = "segment"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    iteration: Mapped[int] = mapped_column(primary_key=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    backend: Mapped[str | None]
    write_token: Mapped[str | None]
    started_at: Mapped[datetime] = mapped_column(default=utc_now)

    environment: Mapped[Environment] = relationship(lazy="joined")


class Weights(Base):
    """A file of a run's weights or of its training state; `kind` is best, last or state, and `bytes` its size.

    `path` is the name of a file in the folder of weights next to the database file, an absolute path, or a URL.
    `iteration` is the number of iterations that the weights were trained for, and `sha256` hashes the file's content.
    """

    __tablename__ = "weights"

    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"), primary_key=True)
    kind: Mapped[str] = mapped_column(primary_key=True)
    iteration: Mapped[int]
    path: Mapped[Location]
    sha256: Mapped[str]
    bytes: Mapped[int] = mapped_column(Bytes)


class Series(Base):
    """The name of logged numbers: a split, such as "test", and a metric. All runs share these rows."""

    __tablename__ = "series"
    __table_args__ = (UniqueConstraint("split", "name"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    split: Mapped[str] = mapped_column(PresentText)
    name: Mapped[str] = mapped_column(PresentText)


class StoredMetric(Base):
    """A metric value of a run at an iteration. A value that is not finite is null, and `kind` names it."""

    __tablename__ = "metric"
    __table_args__ = (UniqueConstraint("run_id", "series_id", "iteration"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    series_id: Mapped[int] = mapped_column(ForeignKey("series.id", ondelete="CASCADE"))
    epoch: Mapped[int]
    iteration: Mapped[int]
    value: Mapped[float | None]
    kind: Mapped[str | None] = mapped_column(NotFinite)


class StoredTrace(Base):
    """Vectors of a run that were logged together at an iteration, as a block of `orthobench.store.tables`."""

    __tablename__ = "trace"
    __table_args__ = (Index("ix_trace_run_id", "run_id", "iteration"),)

    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id", ondelete="CASCADE"))
    epoch: Mapped[int]
    iteration: Mapped[int]
    vectors: Mapped[Mapping[str, Sequence[float]]] = mapped_column(Block)


CHECK = "check"
"""The name of the records of `orthobench check --history`, whose results are those of `orthobench check --json`, with
the `commit` of the checked repository."""


class Benchmark(Base):
    """A call of `orthobench bench` or `study`, or the calibration of a run; `name` identifies the kind.

    The `write_token` names the transaction that stored it.
    """

    __tablename__ = "benchmark"

    id: Mapped[int] = mapped_column(primary_key=True)
    name: Mapped[str] = mapped_column(index=True)
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    created_at: Mapped[datetime] = mapped_column(default=utc_now)
    results: Mapped[dict[str, Any]]
    write_token: Mapped[str | None]

    environment: Mapped[Environment] = relationship(lazy="joined")
