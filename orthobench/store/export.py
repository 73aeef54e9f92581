"""Tables of runs and metrics for other programs, written by pandas."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from orthobench.errors import UsageError
from orthobench.settings import merged_settings
from orthobench.store.atomic import replacing, storage_error
from orthobench.store.store import Store
from orthobench.store.strict_json import finite
from orthobench.store.tables import Run

if TYPE_CHECKING:
    import pandas

Format = Literal["csv", "json", "parquet"]
BATCH = 500  # runs in a query: databases limit the number of values of a query


def export(store: Store, runs: Sequence[Run], folder: Path, form: Format) -> list[Path]:
    """Write the files `runs` and `metrics` in this form into a folder, or replace them; return their paths.

    The table of runs has the columns of `Run`, a column for each setting, and the baselines, seconds and environment
    as JSON. The table of metrics has run, split, name, epoch, iteration, value and `kind`. The kind of a value that is
    not finite is nan, inf or -inf, because JSON has no such numbers.

    Raises:
        UsageError: Parquet needs a package that is not installed.
        StorageError: the folder cannot be written.
    """
    written = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, frame in (("runs", _runs(runs)), ("metrics", _metrics(store, runs))):
            file = folder / f"{name}.{form}"
            with replacing(file) as part:
                _write(frame, part, form)
            written.append(file)
    except OSError as error:
        raise storage_error(error.filename or folder, error) from error
    return written


def _write(frame: pandas.DataFrame, file: Path, form: Format) -> None:
    if form == "csv":
        frame.to_csv(file, index=False)
    elif form == "json":
        records = frame.astype(object).where(frame.notna(), None).to_dict("records")
        file.write_text(json.dumps(finite(records), indent=1, default=str), "utf-8")
    else:
        try:
            frame.to_parquet(file, index=False)
        except ImportError as error:
            raise UsageError("Parquet needs pyarrow: pip install pyarrow, or give --format csv") from error


def _runs(runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    return pandas.DataFrame([_record(run) for run in runs])


def _record(run: Run) -> dict[str, Any]:
    spec = run.spec
    settings = merged_settings(spec)
    own = {column.name: getattr(run, column.name) for column in Run.__table__.columns}
    for inner in ("id", "environment_id", "spec"):
        del own[inner]
    versions = {name: spec[name] for name in ("task_version", "model_version")}
    return {
        **{name: json.dumps(value) if isinstance(value, dict) else value for name, value in own.items()},
        **versions,
        "tags": ", ".join(run.tags),
        "environment": json.dumps(run.environment.facts),
        **{f"setting {name}": _plain(value) for name, value in settings.items()},
    }


def _plain(value: Any) -> str | None:
    """Return a setting as text, because a column may contain both numbers and words."""
    return value if value is None or isinstance(value, str) else json.dumps(value)


def _metrics(store: Store, runs: Sequence[Run]) -> pandas.DataFrame:
    import pandas

    prefixes = {run.id: (run.key, run.task, run.model, run.seed) for run in runs}
    ids = list(prefixes)
    rows = [
        (*prefixes[run_id], *position, value, _kind(value))
        for start in range(0, len(ids), BATCH)
        for run_id, *position, value in store.metric_values(ids[start : start + BATCH])
    ]
    columns = ["run", "task", "model", "seed", "split", "name", "epoch", "iteration", "value", "kind"]
    return pandas.DataFrame(rows, columns=columns)


def _kind(value: float) -> str | None:
    return None if math.isfinite(value) else str(value)
