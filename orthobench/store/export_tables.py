"""Tables of runs and metrics for other programs, written by pandas."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.errors import UsageError
from orthobench.options.arguments import RunsFormat
from orthobench.settings import merged_settings
from orthobench.store.sqlite import connect
from orthobench.store.store import Store
from orthobench.store.tables import Run
from orthobench.system.files import replacing, storage_error
from orthobench.system.kinds import refuse_file, refuse_other_kinds
from orthobench.system.strict_json import dump_json

if TYPE_CHECKING:
    import pandas

KINDS_BY_FORMAT: dict[RunsFormat, str] = {"csv": "CSV", "json": "JSON", "parquet": "Parquet", "sqlite": "SQLite"}
PREFIX = ("run", "task", "model", "seed")
BATCH = 500  # runs per query, because databases limit the number of values in a query


def export(
    store: Store,
    runs: Sequence[Run],
    folder: Path,
    form: RunsFormat,
    vectors: bool = False,
    status_of: Callable[[Run], str] = lambda run: run.status,
) -> list[Path]:
    """Write the tables `runs`, `segments`, `metrics`, `weights` and `vectors` into a folder; return the files' paths.

    Each table is a file of its name; as SQLite, all of them are in `tables.sqlite`. Existing files of these names are
    replaced.
    The table of runs has the columns of `Run`. A column setting_NAME, baseline_NAME, seconds_NAME or environment_NAME
    holds each entry of a record. The table of segments has run, iteration, started_at, backend and environment_NAME.
    The table of metrics has run, split, name, epoch, iteration, value and `kind`. The kind of a value that is not
    finite is nan, inf or -inf, because JSON has no such numbers. The table of vectors has a row for each entry of each
    vector, at its position from 0. The table of weights has the path, SHA-256 and size of each kept file, not the
    numbers in it.

    Args:
        vectors: write the vectors too, such as gradient norms through time and heat maps.
        status_of: returns the current status of a run, because one that was killed is recorded as running.

    Raises:
        UsageError: Parquet needs a package that is not installed, an existing file has another kind, or one of vectors
            would stay next to tables of other runs.
        StorageError: the folder cannot be written.
    """
    refuse_file(folder)
    tables: dict[str, Callable[[], pandas.DataFrame]] = {
        "runs": lambda: _runs(runs, status_of),
        "segments": lambda: _segments(store, runs),
        "metrics": lambda: _metrics(store, runs),
        "weights": lambda: _weights(store, runs),
    }
    if vectors:
        tables["vectors"] = lambda: _vectors(store, runs)
    files = [folder / f"{name}.{form}" for name in (["tables"] if form == "sqlite" else tables)]
    for file in files:
        refuse_other_kinds(file, KINDS_BY_FORMAT[form])
    if form != "sqlite" and not vectors and (earlier := folder / f"vectors.{form}").exists():
        raise UsageError(f"{earlier} is of an earlier export, perhaps of other runs: export the vectors, or delete it")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if form == "sqlite":
            with replacing(files[0]) as part:
                _write_sqlite(tables, part)
        else:
            for file, table in zip(files, tables.values(), strict=True):
                with replacing(file) as part:
                    _write(table(), part, form)
    except OSError as error:
        raise storage_error(error.filename or folder, error) from error
    return files


def _write_sqlite(tables: Mapping[str, Callable[[], pandas.DataFrame]], file: Path) -> None:
    with connect(file) as connection:
        for name, table in tables.items():
            table().to_sql(name, connection, index=False)
            if name != "weights":
                connection.execute(f"CREATE INDEX {name}_run ON {name} ({'key' if name == 'runs' else 'run'})")
        connection.commit()


def as_csv(frame: pandas.DataFrame) -> str:
    """Return a table as CSV in which no spreadsheet finds a formula."""
    import pandas

    texts = frame.select_dtypes(exclude=["number", "bool", "datetime"])
    # Not `map`, which turns whole numbers next to missing ones into 1.0.
    inert = {str(name): pandas.Series([*map(_inert, texts[name])], texts.index, object) for name in texts}
    return frame.assign(**inert).to_csv(index=False)


def _inert(value: Any) -> Any:
    """Escape a text that a spreadsheet would take for a formula; numbers written as text and other values stay."""
    if not isinstance(value, str):
        return value
    text = re.sub(r"\r\n?", "\n", value)  # to_csv does not quote \r, and readers begin a new row after it
    if value[:1] not in ("=", "+", "-", "@", "\t", "\r"):
        return text
    try:
        float(value)
    except ValueError:
        return f"'{text}"
    return value


def _write(frame: pandas.DataFrame, file: Path, form: RunsFormat) -> None:
    if form == "csv":
        file.write_text(as_csv(frame), "utf-8", newline="")
    elif form == "json":
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        file.write_text(dump_json(records, indent=1, default=str), "utf-8")
    else:
        try:
            frame.to_parquet(file, index=False)
        except ImportError as error:
            raise UsageError("Parquet needs pyarrow: `pip install pyarrow`, or write csv or json instead") from error


def _runs(runs: Sequence[Run], status_of: Callable[[Run], str]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame([_record(run) | {"status": status_of(run)} for run in runs])


def _record(run: Run) -> dict[str, Any]:
    spec = run.spec
    settings = merged_settings(spec)
    own = {column.name: getattr(run, column.name) for column in Run.__table__.columns}
    for inner in ("id", "environment_id", "spec", "seconds", "baselines", "metrics", "write_token"):
        del own[inner]
    return {
        **own,
        **{name: spec[name] for name in ("task_version", "model_version")},
        "tags": ", ".join(run.tags),
        **_columns("baseline", run.baselines),
        **_columns("seconds", run.seconds),
        **{name: _plain(value) for name, value in _columns("setting", settings).items()},
        **{name: _plain(value) for name, value in _columns("environment", run.environment.facts).items()},
    }


def _columns(prefix: str, record: Mapping[str, Any]) -> dict[str, Any]:
    """Return a record's entries by column name: "train loss" of "seconds" is seconds_train_loss."""
    return {f"{prefix}_{name.replace(' ', '_')}": value for name, value in record.items()}


def _plain(value: Any) -> str | None:
    """Return a value as text, because a column may contain both numbers and words."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _segments(store: Store, runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    keys = {run.id: run.key for run in runs}
    columns = ["run", "iteration", "started_at", "backend"]
    records = [
        {
            **dict(zip(columns, (keys[row.run_id], row.iteration, row.started_at, row.backend), strict=True)),
            **{name: _plain(value) for name, value in _columns("environment", row.environment.facts).items()},
        }
        for ids in _batches(runs)
        for row in store.segments(ids)
    ]
    return pandas.DataFrame(records) if records else pandas.DataFrame(columns=columns)


def _weights(store: Store, runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    keys, columns = {run.id: run.key for run in runs}, ["kind", "iteration", "path", "sha256", "bytes"]
    rows = [
        (keys[row.run_id], row.kind, row.iteration, str(row.path), row.sha256, row.bytes)
        for ids in _batches(runs)
        for row in store.weights(ids)
    ]
    return pandas.DataFrame(rows, columns=["run", *columns])


def _metrics(store: Store, runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    prefixes = {run.id: _prefix(run) for run in runs}
    rows = [
        (*prefixes[run_id], *position, value, _kind(value))
        for ids in _batches(runs)
        for run_id, *position, value in store.metric_values(ids)
    ]
    return pandas.DataFrame(rows, columns=[*PREFIX, "split", "name", "epoch", "iteration", "value", "kind"])


def _vectors(store: Store, runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    columns = [*PREFIX, "name", "epoch", "iteration", "position", "value"]
    parts = [
        pandas.DataFrame(
            {
                **dict(zip(PREFIX, _prefix(run), strict=True)),
                "name": trace.name,
                "epoch": trace.epoch,
                "iteration": trace.iteration,
                "position": range(len(trace.values)),
                "value": trace.values,
            },
            columns=columns,
        )
        for run in runs
        for trace in store.traces([run.id])
    ]
    return pandas.concat(parts, ignore_index=True) if parts else pandas.DataFrame(columns=columns)


def _prefix(run: Run) -> tuple[str, str, str, int]:
    return run.key, run.task, run.model, run.seed


def _batches(runs: Sequence[Run]) -> Iterator[list[int]]:
    """Yield the ids of the runs in lists of at most `BATCH`."""
    for start in range(0, len(runs), BATCH):
        yield [run.id for run in runs[start : start + BATCH]]


def _kind(value: float) -> str | None:
    return None if math.isfinite(value) else str(value)
