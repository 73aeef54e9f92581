"""Runs as Parquet files: a shard is a set of runs, with one file for each table.

All files of a shard have the hash of their contents as their name, so a shard never changes, and publishers do not
overwrite each other's files. Rows name runs and environments by their hashes. A shard may be a stranger's: it is read
as data, and every row is checked before any is used.
"""

from __future__ import annotations

import hashlib
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from sqlalchemy import Connection, Table, insert

from orthobench.errors import UsageError, needs_extra, one_line, without_folders
from orthobench.settings import CHECKSUM, run_names, without_paths
from orthobench.store import Run, Status, Store
from orthobench.store.damage import UNEXPECTED, faults_in
from orthobench.store.tables import Base, Environment
from orthobench.system.strict_json import load_json

if TYPE_CHECKING:
    import pyarrow

FORMAT = 1
"""The version of the files; a change of a column needs a new one."""
FORMAT_KEY = b"orthobench_format"
SHARD = re.compile(r"[0-9a-f]{32}\.parquet")
"""The name of a shard's files."""
RUNS_OF_A_SHARD = 200
ROWS_AT_ONCE = 2_000
MOST_ROWS, MOST_UNPACKED = 4_000_000, 1 << 29
"""The most rows and unpacked bytes of a file, so that a small file does not fill the memory."""
LONGEST_NAME, LONGEST_TEXT = 300, 1 << 20

# A type ends in "?" if the value may be missing. A name, unlike a text, is one short line that no spreadsheet computes.
COLUMNS: dict[str, dict[str, str]] = {
    "environments": {"digest": "name", "facts": "json"},
    "sources": {"digest": "name", "content": "bytes"},
    "segments": {
        "run": "name",
        "iteration": "int",
        "environment": "name",
        "backend": "name?",
        "started_at": "time",
    },
    "metrics": {
        "run": "name",
        "split": "name",
        "name": "name",
        "epoch": "int",
        "iteration": "int",
        "value": "float?",
        "kind": "text?",
    },
    "traces": {"run": "name", "name": "name", "epoch": "int", "iteration": "int", "values": "floats"},
    "runs": {
        "key": "name",
        "task": "name",
        "task_version": "name",
        "model": "name",
        "model_version": "name",
        "seed": "int",
        "variant": "name",
        "condition": "name",
        "preset": "name?",
        "spec": "json",
        "status": "name",
        "message": "text?",
        "environment": "name",
        "device": "name",
        "backend": "name?",
        "parameter_count": "int",
        "metric": "name",
        "goal": "name",
        "metrics": "json?",
        "baselines": "json",
        "iterations": "int",
        "total_iterations": "int",
        "iterations_per_epoch": "int",
        "final_value": "float?",
        "best_value": "float?",
        "best_iteration": "int?",
        "seconds": "json",
        "peak_memory": "int?",
        "created_at": "time",
        "updated_at": "time",
        "continued_from": "name?",
        "tags": "names",
    },
}
"""The columns of each table. The runs come last, because their file announces a shard."""
SCHEMA_NAMES = ("runs", *(name for name in COLUMNS if name != "runs"))
RUN_COLUMNS = [name for name in COLUMNS["runs"] if name in Base.metadata.tables["run"].columns]

Rows = dict[str, list[dict[str, Any]]]
"""The rows of a shard by table."""


def rows_of(store: Store, runs: Sequence[Run]) -> Rows:
    """Return runs with all that belongs to them, but for kept weights and paths of this machine."""
    keys = {run.id: run.key for run in runs}
    ids = list(keys)
    facts: dict[str, dict[str, Any]] = {}

    def digest_of(environment: Environment) -> str:
        shown = environment.facts_for_others
        facts.setdefault(digest := _facts_digest(shown), shown)
        return digest

    segments = [
        {
            "run": keys[row.run_id],
            "iteration": row.iteration,
            "environment": digest_of(row.environment),
            "backend": row.backend,
            "started_at": row.started_at,
        }
        for row in store.segments(ids)
    ]
    records = [
        {
            **{name: getattr(run, name) for name in RUN_COLUMNS},
            **{name: run.spec[name] for name in ("task_version", "model_version")},
            "spec": without_paths(run.spec),
            "message": run.message and " ".join(without_folders(run.message).split()),
            "environment": digest_of(run.environment),
            "tags": run.tags,
        }
        for run in runs
    ]
    metrics = [
        {
            "run": keys[run_id],
            "split": split,
            "name": name,
            "epoch": epoch,
            "iteration": iteration,
            "value": value if math.isfinite(value) else None,
            "kind": None if math.isfinite(value) else str(value),
        }
        for run_id, split, name, epoch, iteration, value in store.metric_values(ids)
    ]
    traces = [
        {
            "run": keys[row.run_id],
            "name": row.name,
            "epoch": row.epoch,
            "iteration": row.iteration,
            "values": list(row.values),
        }
        for row in store.traces(ids)
    ]
    hashes = [each for own in facts.values() for plugin in own.get("plugins", ()) for each in plugin["files"].values()]
    contents = store.sources(sorted(set(hashes)))
    return {
        "environments": [{"digest": digest, "facts": own} for digest, own in facts.items()],
        "sources": [{"digest": digest, "content": content} for digest, content in contents.items()],
        "segments": segments,
        "metrics": metrics,
        "traces": traces,
        "runs": records,
    }


def _facts_digest(facts: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:16]


def pack_shard(rows: Rows) -> dict[str, bytes]:
    """Return the files of a shard by their path.

    Raises:
        UsageError: pyarrow is not installed, or a value is one that no reader would accept.
    """
    contents = {table: _write(table, rows[table]) for table in COLUMNS}
    shard = _hash(contents)
    for _ in unpack_shard(shard, contents.__getitem__, "this database"):
        pass
    return {f"{table}/{shard}.parquet": content for table, content in contents.items()}


def _hash(contents: Mapping[str, bytes]) -> str:
    """Return the name of a shard with these files by table."""
    parts = (f"{table} {hashlib.sha256(contents[table]).hexdigest()}\n" for table in COLUMNS)
    return hashlib.sha256("".join(parts).encode()).hexdigest()[:32]


def _pyarrow() -> Any:
    """Return pyarrow.

    Raises:
        UsageError: it is not installed.
    """
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise needs_extra("Parquet", "pyarrow", "hub") from error
    return pyarrow


def _schema(table: str) -> pyarrow.Schema:
    pa = _pyarrow()
    types = {
        **dict.fromkeys(("name", "text", "json"), pa.string()),
        "int": pa.int64(),
        "float": pa.float64(),
        "time": pa.timestamp("us"),
        "bytes": pa.binary(),
        "floats": pa.list_(pa.float32()),
        "names": pa.list_(pa.string()),
    }
    fields = [
        pa.field(name, types[kind.rstrip("?")], nullable=kind.endswith("?")) for name, kind in COLUMNS[table].items()
    ]
    return pa.schema(fields, metadata={FORMAT_KEY: str(FORMAT)})


def _write(table: str, rows: Iterable[Mapping[str, Any]]) -> bytes:
    pa, columns = _pyarrow(), COLUMNS[table]
    texts = [
        {
            name: json.dumps(value, sort_keys=True) if columns[name].startswith("json") and value is not None else value
            for name, value in row.items()
        }
        for row in rows
    ]
    file = io.BytesIO()
    # without dictionaries, so that the sizes in a file's footer are those of its values
    pa.parquet.write_table(pa.Table.from_pylist(texts, _schema(table)), file, compression="zstd", use_dictionary=False)
    return file.getvalue()


def unpack_shard(
    shard: str, content_of: Callable[[str], bytes], place: str, tables: Sequence[str] = tuple(COLUMNS)
) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Yield the rows of a shard in batches, each with the name of its table, in the order of `COLUMNS`.

    Args:
        content_of: returns the content of a table's file.
        place: where the shard is, as messages name it.
        tables: only these; then the shard's name is not compared with its contents.

    Raises:
        UsageError: a file is damaged, newer than this program, or holds what no run of orthobench has.
    """
    contents = {table: content_of(table) for table in tables}
    if tuple(contents) == tuple(COLUMNS) and _hash(contents) != shard:
        raise UsageError(f"{place} is damaged: shard {shard} is not what its name says, because a file was changed")
    for table, content in contents.items():
        where = f"{place} is damaged: {table}/{shard}.parquet"
        try:
            for rows in _batches(table, content, where):
                for row in rows:
                    _check_row(table, row)
                yield table, rows
        except UsageError:
            raise
        except (*UNEXPECTED, OSError) as error:  # what pyarrow raises derives from these
            raise UsageError(f"{where}: {_shown(one_line(error))}") from error


def _batches(table: str, content: bytes, where: str) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of a file with their JSON as values, a few thousand at once.

    Raises:
        UsageError: the file is not by orthobench, newer, or too large.
        Exception: any of `UNEXPECTED`, or an OSError; the file is damaged.
    """
    pa, columns = _pyarrow(), COLUMNS[table]
    file = pa.parquet.ParquetFile(io.BytesIO(content))
    found, expected = file.schema_arrow, _schema(table)
    version = (found.metadata or {}).get(FORMAT_KEY, b"").decode("ascii", "replace")
    if not version.isdecimal():
        raise UsageError(f"{where} was not written by orthobench")
    if int(version[:9]) > FORMAT:
        newer = where.replace(" is damaged: ", ": ")
        raise UsageError(
            f"{newer} was written by a newer orthobench (format {version[:9]}, this one reads {FORMAT}): update it"
        )
    if not found.equals(expected):
        odd = [field.name for field in expected if field.name not in found.names or found.field(field.name) != field]
        odd += [name for name in found.names if name not in expected.names]
        raise UsageError(f"{where}: its columns differ from those of this format: {_shown(', '.join(odd))}")
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    unpacked = sum(group.total_byte_size for group in groups)
    if file.metadata.num_rows > MOST_ROWS or unpacked > MOST_UNPACKED:
        raise UsageError(f"{where}: it has {file.metadata.num_rows} rows of {unpacked} bytes, too many for a shard")
    documents = [name for name, kind in columns.items() if kind.startswith("json")]
    for batch in file.iter_batches(ROWS_AT_ONCE):
        rows = batch.to_pylist()
        for row in rows:
            for name in documents:
                row[name] = None if row[name] is None else load_json(row[name])
        yield rows


def _check_row(table: str, row: Mapping[str, Any]) -> None:
    """Refuse a row whose texts, hashes or numbers cannot be those of a run.

    Raises:
        ValueError: they cannot.
    """
    for name, kind in COLUMNS[table].items():
        for text in row[name] if kind == "names" else [row[name]]:
            if text is not None:
                _check_value(name, kind.rstrip("?s" if kind == "names" else "?"), text)
    if table == "environments" and _facts_digest(row["facts"]) != row["digest"]:
        raise ValueError(f"environment {row['digest']} is not the hash of its facts")
    if table == "sources" and hashlib.sha256(row["content"]).hexdigest() != row["digest"]:
        raise ValueError(f"source {row['digest']} is not the hash of its content")
    if table == "metrics" and (row["value"] is None) == (row["kind"] is None):
        raise ValueError(f"run {row['run']} has a {row['name']} without a value")
    if table == "runs":
        _check_identity(row)


def _check_value(name: str, kind: str, value: Any) -> None:
    if kind in ("name", "text"):
        _check_text(name, value, LONGEST_NAME if kind == "name" else LONGEST_TEXT)
    if kind == "name" and (not value or value[0] in "=+-@ "):
        raise ValueError(f"its {name} {value[:40]!r} is empty, or a spreadsheet would compute it")
    if kind == "float" and (math.isnan(value) or (name == "value" and math.isinf(value))):  # a result may be infinite
        raise ValueError(f"its {name} is {value}")
    if kind == "json":
        if not isinstance(value, dict):
            raise ValueError(f"its {name} is no JSON object")
        for text in _texts(value):
            _check_text(name, text, LONGEST_TEXT)


def _check_text(name: str, text: str, longest: int) -> None:
    if len(text) > longest or not text.isprintable():
        raise ValueError(f"its {name} {text[:40]!r} is too long, or has characters that control a terminal")


def _texts(value: Any) -> Iterator[str]:
    """Yield all texts in a JSON value, names of entries included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for name, entry in value.items():
            yield name
            yield from _texts(entry)
    elif isinstance(value, list):
        for entry in value:
            yield from _texts(entry)


def _check_identity(run: Mapping[str, Any]) -> None:
    """Refuse a run whose key is not the hash of its spec, or whose columns contradict the spec.

    Raises:
        ValueError, TypeError, LookupError: they do.
    """
    spec = run["spec"]
    fields = {"task", "model", "task_settings", "model_settings", "training", "task_version", "model_version", "seed"}
    if set(spec) != fields:
        raise ValueError(f"run {run['key']} has a spec with the entries {', '.join(sorted(spec))}")
    expected = run_names(spec) | {
        name: spec[name] for name in ("task", "model", "task_version", "model_version", "seed")
    }
    for name, value in expected.items():
        if run[name] != value:
            raise ValueError(f"run {run['key']} is forged: its {name} does not follow from its spec")
    if not Status(run["status"]).is_final:
        raise ValueError(f"run {run['key']} has no result")
    for values in (spec["task_settings"], spec["model_settings"], spec["training"]):
        for name, value in values.items():
            if values.get(name + CHECKSUM) is not None and PurePath(str(value)).name != value:
                raise ValueError(f"the setting {name} of run {run['key']} is a path of another machine")


def _shown(text: str) -> str:
    """Return a text of a stranger as one line for a terminal."""
    return "".join(letter if letter.isprintable() else repr(letter)[1:-1] for letter in text)[:300]


class Loader:
    """Writes the rows of shards to an empty database. Of two copies of a run, the first counts.

    Args:
        connection: a connection to the database, in a transaction.
    """

    def __init__(self, connection: Connection) -> None:
        self.connection = connection
        self.environments: dict[str, int] = {}
        self.sources: set[str] = set()
        self.series: dict[tuple[str, str], int] = {}
        self.runs: dict[str, int] = {}

    def add(self, shard: str, place: str, tables: Iterable[tuple[str, list[dict[str, Any]]]]) -> None:
        """Add a shard.

        Raises:
            UsageError: a row refers to a missing one, or the database's own checks refuse it.
        """
        waiting: Rows = {table: [] for table in COLUMNS}
        for table, rows in tables:
            waiting[table] += rows
        known = set(self.runs)
        try:
            self._environments(waiting["environments"])
            new = [row for row in waiting["sources"] if row["digest"] not in self.sources]
            self.sources |= {row["digest"] for row in new}
            self._insert("source", new)
            self._runs([row for row in waiting["runs"] if row["key"] not in known])
            for table in ("segments", "metrics", "traces"):
                getattr(self, f"_{table}")([row for row in waiting[table] if row["run"] not in known])
        except KeyError as error:
            raise UsageError(f"{place} is damaged: shard {shard} has no row {_shown(str(error))}") from error
        except UNEXPECTED as error:
            raise UsageError(f"{place} is damaged: shard {shard}: {_shown(one_line(error))}") from error

    def check(self, place: str) -> None:
        """Refuse rows that the database's own checks find broken.

        Raises:
            UsageError: a row is broken.
        """
        for fault in faults_in(self.connection):
            raise UsageError(f"{place} is damaged: {fault}")

    def _insert(self, table: str, rows: Sequence[Mapping[str, Any]]) -> None:
        for start in range(0, len(rows), ROWS_AT_ONCE):
            self.connection.execute(insert(_table(table)), list(rows[start : start + ROWS_AT_ONCE]))

    def _one(self, table: str, row: Mapping[str, Any]) -> int:
        done = self.connection.execute(insert(_table(table)).values(row)).inserted_primary_key
        assert done is not None
        return int(done[0])

    def _environments(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            if row["digest"] not in self.environments:
                self.environments[row["digest"]] = self._one("environment", row)

    def _runs(self, rows: Iterable[dict[str, Any]]) -> None:
        for row in rows:
            columns = {name: row[name] for name in RUN_COLUMNS}
            columns["environment_id"] = self.environments[row["environment"]]
            self.runs[row["key"]] = number = self._one("run", columns)
            self._insert("tag", [{"run_id": number, "name": name} for name in sorted(set(row["tags"]))])

    def _segments(self, rows: Iterable[dict[str, Any]]) -> None:
        self._insert(
            "segment",
            [
                {
                    "run_id": self.runs[row["run"]],
                    "environment_id": self.environments[row["environment"]],
                    **{name: row[name] for name in ("iteration", "backend", "started_at")},
                }
                for row in rows
            ],
        )

    def _metrics(self, rows: Sequence[dict[str, Any]]) -> None:
        for split, name in sorted({(row["split"], row["name"]) for row in rows} - self.series.keys()):
            self.series[split, name] = self._one("series", {"split": split, "name": name})
        self._insert(
            "metric",
            [
                {
                    "run_id": self.runs[row["run"]],
                    "series_id": self.series[row["split"], row["name"]],
                    **{name: row[name] for name in ("epoch", "iteration", "value", "kind")},
                }
                for row in rows
            ],
        )

    def _traces(self, rows: Iterable[dict[str, Any]]) -> None:
        vectors: dict[tuple[str, int, int], dict[str, list[float]]] = {}
        for row in rows:
            vectors.setdefault((row["run"], row["epoch"], row["iteration"]), {})[row["name"]] = row["values"]
        self._insert(
            "trace",
            [
                {"run_id": self.runs[run], "epoch": epoch, "iteration": iteration, "vectors": own}
                for (run, epoch, iteration), own in vectors.items()
            ],
        )


def _table(name: str) -> Table:
    return Base.metadata.tables[name]
