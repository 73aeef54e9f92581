"""The tables. A change here needs a migration in `migrations/versions` (a test compares the two)."""

from __future__ import annotations

import json
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache
from itertools import accumulate, chain, pairwise
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sqlalchemy import (
    JSON,
    BigInteger,
    DateTime,
    Float,
    ForeignKey,
    Index,
    Integer,
    LargeBinary,
    MetaData,
    String,
    UniqueConstraint,
)
from sqlalchemy.engine import Dialect
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship
from sqlalchemy.types import TypeDecorator

from orthobench.metric import GRADIENT_NORM, Metric
from orthobench.store.result import Status, is_timed, times_of_phases, wall_seconds
from orthobench.system.location import Location
from orthobench.system.strict_json import load_json

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

WIDTH = 4
"""Bytes of a number."""
NAMES = (
    b'"c":"n":"z":"1.c":"1.h":100,"trained":2,"lengths":,"by_length/prefix_accuracy":,"by_length/accuracy":,'
    b'"gradient_norm/c":,"gradient_norm_per_sample/c":,"gradient_norm/z":,"gradient_norm_per_sample/z":,"heat_map/,'
    b'{"by_length/accuracy":5,"by_length/lengths":5,"by_length/trained":2,"gradient_norm/h":10,'
    b'"gradient_norm_per_sample/h":10}\n'
)
"""Frequent first lines. A block cannot be read with another dictionary, so a change needs a migration."""
LONGEST_HEAD, MOST_NUMBERS = 1 << 16, 1 << 23
"""The most bytes of a line of lengths, and the most numbers of a block, so that no block unpacks to gigabytes."""
PLAIN = f"{GRADIENT_NORM}/"
"""The first letters of the vectors that are not compressed, so that a view reads them (`orthobench.store.views`).

Users want them in plain SQL; all vectors without compression would double the file.
"""


def pack(vectors: Mapping[str, Sequence[float]]) -> bytes:
    """Round vectors to float32, and return the block that holds them, first those whose names begin with `PLAIN`.

    Raises:
        ValueError: they have too many numbers, or too long names.
    """
    import numpy as np  # here, because commands that list runs read no vectors

    plain = {name: values for name, values in vectors.items() if name.startswith(PLAIN)}
    others = {name: values for name, values in vectors.items() if name not in plain}
    lines = [
        f"{json.dumps({name: len(values) for name, values in part.items()}, separators=(',', ':'))}\n".encode()
        for part in (plain, others)
    ]
    if sum(map(len, vectors.values())) > MOST_NUMBERS or max(map(len, lines)) > LONGEST_HEAD:
        raise ValueError(f"the vectors of an evaluation have more than {MOST_NUMBERS} numbers, or too long names")
    numbers, other_numbers = (array("f", chain.from_iterable(part.values())).tobytes() for part in (plain, others))
    start, steps = lines[0] + numbers, np.diff(np.frombuffer(other_numbers, "<u4"), prepend=np.uint32(0))
    # The dictionary begins with the plain part, because the stream thereby has a checksum of it.
    content, stream = steps.tobytes(), zlib.compressobj(9, zdict=start + NAMES)
    parts = [start, stream.compress(lines[1])]
    for byte in reversed(range(WIDTH)):  # the numbers are little-endian
        parts.append(stream.flush(zlib.Z_BLOCK))  # because the bytes of each position have their own frequencies
        parts.append(stream.compress(content[byte::WIDTH]))
    return b"".join([*parts, stream.flush()])


def unpack(block: bytes) -> dict[str, list[float]]:
    """Return the vectors of a block by name, as lists.

    Raises:
        ValueError: the block is damaged.
    """
    return {name: values.tolist() for name, values in unpack_arrays(block).items()}


def unpack_arrays(block: bytes) -> dict[str, NDArray[np.float32]]:
    """Return the vectors of a block by name.

    Raises:
        ValueError: the block is damaged.
    """
    import numpy as np  # as above

    lengths, plain, steps = open_block(block)
    others = np.cumsum(np.frombuffer(steps, "<u4"), dtype=np.uint32)
    numbers = np.concatenate((np.frombuffer(plain, "<u4"), others)).view(np.float32)
    ends = accumulate(lengths.values(), initial=0)
    return {name: numbers[start:end] for name, (start, end) in zip(lengths, pairwise(ends), strict=True)}


def open_block(block: bytes) -> tuple[dict[str, int], bytes, bytes]:
    """Return the lengths of a block's vectors by name, and the float32 numbers of the plain ones, which come first.

    The last value has the steps between the bits of all other numbers. A block of a schema before 0102 is a stream
    alone.

    Raises:
        ValueError: the block is damaged.
    """
    plain: dict[str, int] = {}
    first = end = 0
    try:
        if block[:1] == b"{":
            head, newline, _ = block[:LONGEST_HEAD].partition(b"\n")
            plain = _lengths(head, newline)
            first = len(head) + len(newline)
            end = first + WIDTH * sum(plain.values())
        start, stream = block[:end], block[end:]
    except (ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its vectors cannot be read: {error}") from error
    others, steps = _open_stream(stream, start)
    if plain.keys() & others.keys():
        raise ValueError("its vectors have the same name twice")
    return plain | others, start[first:], steps


def _open_stream(stream: bytes, plain: bytes) -> tuple[dict[str, int], bytes]:
    """Return the lengths of a stream's vectors by name, and the steps between the bits of all their float32 numbers.

    The first line says how many bytes follow, and no more are decompressed, because a few bytes may stand for any
    number of them.

    Args:
        plain: the part of the block before the stream.

    Raises:
        ValueError: the stream or the plain part is damaged.
    """
    try:
        decompressed = zlib.decompressobj(zdict=plain + NAMES)
        head, newline, content = decompressed.decompress(stream, LONGEST_HEAD).partition(b"\n")
        lengths = _lengths(head, newline)
        count = sum(lengths.values())
        if len(content) <= WIDTH * count:
            content += decompressed.decompress(decompressed.unconsumed_tail, WIDTH * count - len(content) + 1)
    except (zlib.error, ValueError, TypeError, AttributeError) as error:
        raise ValueError(f"its vectors cannot be read: {error}") from error
    if not decompressed.eof or decompressed.unused_data or len(content) != WIDTH * count:
        raise ValueError("its vectors are cut off or have other bytes at their end")
    ordered = bytearray(len(content))
    for byte in range(WIDTH):
        start = (WIDTH - 1 - byte) * count
        ordered[byte::WIDTH] = content[start : start + count]
    return lengths, bytes(ordered)


@lru_cache(maxsize=256)  # because the tests of most runs log the same vectors, and reports read all of their blocks
def _lengths(head: bytes, newline: bytes) -> dict[str, int]:
    """Return the lengths of vectors by name, from a line of a block.

    Raises:
        ValueError, TypeError, AttributeError: the line is damaged.
    """
    lengths: dict[str, int] = load_json(head)
    count = sum(lengths.values())
    if not newline or min(lengths.values(), default=0) < 0 or not 0 <= count <= MOST_NUMBERS:
        raise ValueError(f"it is said to have {count} numbers")
    return lengths


def _only(name: str, *types: type) -> Callable[[Any], Any]:
    """Return a function that returns a value of these types, and raises ValueError for any other value."""

    def check(value: Any) -> Any:
        if type(value) in types:
            return value
        raise ValueError(f"{value!r:.40} is not {name}")

    return check


_NULL = type(None)
_WHOLE, _NUMBER = _only("a whole number", int, _NULL), _only("a number", float, int, _NULL)
_TEXT, _PRESENT = _only("a text", str, _NULL), _only("a text", str)


class WholeNumber(Integer):
    """An integer."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _WHOLE


class Number(Float[float]):
    """A floating-point number."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _NUMBER


class Text(String):
    """A text."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _TEXT


class PresentText(String):
    """A text whose absence shows that an outer join found no row, so that null is refused as well."""

    def result_processor(self, dialect: Dialect, coltype: object) -> Callable[[Any], Any]:
        return _PRESENT


class Located(TypeDecorator[Location]):
    """A path or a URL, whose text hides its passwords."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Location | None, dialect: Dialect) -> str | None:
        return None if value is None else value.real

    def process_result_value(self, value: str | None, dialect: Dialect) -> Location | None:
        return None if value is None else Location(value)


WORDS = ("nan", "inf", "-inf")
"""The words for numbers that are not finite."""


class NotFinite(TypeDecorator[str]):
    """The word for a number that is not finite (`WORDS`). No database knows these words, so all are checked."""

    impl = String
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> Any:
        if value is None or value in WORDS:
            return value
        raise ValueError(f"{value!r:.40} is not nan, inf or -inf")


class JsonObject(TypeDecorator[dict[str, Any]]):
    """A JSON object; null is stored as null."""

    impl = JSON(none_as_null=True)
    cache_ok = True

    def process_result_value(self, value: Any, dialect: Dialect) -> dict[str, Any] | None:
        if value is None or isinstance(value, dict):
            return value
        raise ValueError(f"{value!r:.40} is not a JSON object")


class Block(TypeDecorator[Mapping[str, Sequence[float]]]):
    """Vectors by name, stored as a block of `orthobench.store.tables`."""

    impl = LargeBinary
    cache_ok = True

    def process_bind_param(self, value: Mapping[str, Sequence[float]] | None, dialect: Dialect) -> bytes | None:
        return None if value is None else pack(value)

    def process_result_value(self, value: bytes | None, dialect: Dialect) -> dict[str, list[float]] | None:
        return None if value is None else unpack(value)


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


class Environment(Base):
    """An environment of runs: machine, versions and commit. Runs of the same environment share a row."""

    __tablename__ = "environment"

    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(unique=True)
    facts: Mapped[dict[str, Any]]

    @property
    def machine(self) -> str:
        """The name of the accelerator, or of the processor of a run without one."""
        return str(self.facts.get("accelerator") or self.facts.get("cpu"))

    @property
    def facts_for_others(self) -> dict[str, Any]:
        """The facts with the names of plugin files in place of their paths."""
        plugins = [
            {**plugin, "path": PurePath(plugin["path"]).name} if plugin.get("path") else dict(plugin)
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
    def is_trial(self) -> bool:
        """Whether the run is a trial of a search that never uses the test data, and so has no result."""
        return bool(self.spec["training"].get("judged_by") == "validation_only")

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
            "best": self.best_value,
            "parameters": self.parameter_count,
            "solved_at": self.solved_at,
            "tags": self.tags,
        }

    def __repr__(self) -> str:
        """Describe the run and its result in one line."""
        values = ((self.metric, self.final_value), ("best", self.best_value))
        result = "".join(f", {name} {value:.4g}" for name, value in values if value is not None)
        return f"<run {self.key}: {self.task} {self.model}, seed {self.seed}, {self.status}{result}>"

    def _repr_html_(self) -> str:
        import pandas as pd

        own = {name: value for name, value in self.brief().items() if value not in (None, [])}
        return pd.DataFrame([own]).to_html(index=False, float_format="{:.4g}".format)

    @property
    def wall_seconds(self) -> float:
        """The wall-clock seconds of all phases."""
        return wall_seconds(self.seconds)

    @property
    def seconds_per_epoch(self) -> float | None:
        """The seconds of training per epoch, without tests, probes and logging; None if they are not known."""
        training = self.phases.get("train")
        return training / (self.iterations / self.iterations_per_epoch) if training and self.iterations else None

    @property
    def phases(self) -> dict[str, float]:
        """The wall-clock seconds by phase; empty if they are not true."""
        return times_of_phases(self.seconds, self.device)

    @property
    def is_timed(self) -> bool:
        """Whether the seconds of single phases are true."""
        return is_timed(self.seconds, self.device)


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
