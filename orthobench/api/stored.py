"""Stored runs as JSON values, as the commands list and show them. It imports neither torch nor pandas nor figures."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from orthobench.analysis.selection import find_runs
from orthobench.analysis.variants import differing_settings
from orthobench.api.commands import command_of
from orthobench.errors import UsageError
from orthobench.metric import why_undefined as why_undefined
from orthobench.settings.filters import read_conditions
from orthobench.store import Run, Segment, Store, Weights, open_store
from orthobench.store.sqlite import log_of, log_size
from orthobench.system.cycles import without_cycle_search
from orthobench.system.files import storage_error, write_bytes
from orthobench.system.kinds import refuse_file
from orthobench.system.location import Location
from orthobench.training.settled import status_in
from orthobench.weights.weights_files import exists, find_weights

if TYPE_CHECKING:
    from orthobench.session.session import SweepResult


@without_cycle_search()
def list_runs(db: Location, where: Sequence[str] = (), keys: Sequence[str] = ()) -> list[dict[str, Any]]:
    """Return a row for each stored run that meets the conditions, in the order in which the runs started.

    Args:
        keys: the keys of the runs or their first digits, instead of conditions; their order is kept.

    Raises:
        UsageError: there is no such database, a condition is malformed, or a key is unknown or ambiguous.
        NoMatchError: the database has runs, and none meets the conditions.
    """
    conditions = read_conditions(where)
    with open_store(db) as store:
        status_of = status_in(store, db)
        if keys:
            return _rows(store, [store.get(key) for key in dict.fromkeys(keys)], status_of)
        return _rows(store, find_runs(partial(store.runs, brief=True), conditions, status_of), status_of)


def list_sweep(result: SweepResult, db: Location, dry_run: bool) -> list[dict[str, Any]]:
    """Return a row for each run of a sweep: in a dry run as planned, else as `list_runs` does."""
    if dry_run:
        return result.plan.records()
    with open_store(db) as store:
        return _rows(store, result.runs, status_in(store, db))


def _rows(store: Store, runs: Sequence[Run], status_of: Callable[[Run], str]) -> list[dict[str, Any]]:
    """Return rows with the kinds of weights, and the settings in which runs of a task and model differ."""
    differing = differing_settings(runs, lambda run: f"{run.task} {run.model}")
    kinds: dict[int, list[str]] = {}
    for row in store.weights():
        kinds.setdefault(row.run_id, []).append(row.kind)
    return [
        run.brief(status_of(run)) | {"weights": kinds.get(run.id, []), "settings": differing[run.key]} for run in runs
    ]


def show_run(key: str, db: Location) -> dict[str, Any]:
    """Return all that the database stores about a run.

    Args:
        key: the run's key, or its first digits.

    Raises:
        UsageError: there is no such database or run, or several keys begin with these digits.
    """
    # Here, because it loads numpy, which a list of runs does not need.
    from orthobench.store.by_length import read_by_length

    series: dict[str, list[dict[str, Any]]] = {}
    with open_store(db) as store:
        run = store.get(key)
        for row in store.metrics([run.id]):
            point = {"epoch": row.epoch, "iteration": row.iteration, "value": row.value}
            series.setdefault(f"{row.split}/{row.name}", []).append(point)
        measured = read_by_length(store.traces([run.id]))
        return (
            run.brief(status_in(store, db)(run))
            | {
                "message": run.message,
                "iterations": run.iterations,
                "of": run.total_iterations,
                "best_iteration": run.best_iteration,
                "baselines": run.baselines,
                "device": run.device,
                "backend": run.backend,
                "seconds": {"all phases": run.wall_seconds, "note": run.untimed} if run.untimed else run.seconds,
                "seconds_per_epoch": run.seconds_per_epoch,
                "peak_memory": run.peak_memory,
                "created_at": run.created_at.isoformat(timespec="seconds"),
                "continued_from": run.continued_from,
                "reproduce": command_of(db, run),
                "spec": run.spec,
                "environment": run.environment.facts,
                "metrics": series,
            }
            | ({} if measured is None else {"by_length": vars(measured)})
            | {
                "weights": [_weights(db, run.key, row) for row in store.weights([run.id])],
                "segments": [_segment(segment) for segment in store.segments([run.id])],
            }
        )


def _weights(db: Location, key: str, row: Weights) -> dict[str, Any]:
    """Return the record of a weights file, with its full path or URL and whether it exists (None for a URL)."""
    try:
        folder, name = find_weights(db, key, row)
        file = folder.root / name
    except UsageError:
        file = row.path
    names = ("kind", "iteration", "bytes", "sha256")
    return {"file": str(file), "exists": exists(db, key, row)} | {name: getattr(row, name) for name in names}


def _segment(segment: Segment) -> dict[str, Any]:
    return {
        "iteration": segment.iteration,
        "started_at": segment.started_at.isoformat(timespec="seconds"),
        "backend": segment.backend,
        "environment": segment.environment.facts,
    }


def unfolded_log(db: Location) -> tuple[Path, int] | None:
    """Return the write-ahead log of a SQLite file and its bytes, if it holds rows that a copy of the file may lack."""
    return (log_of(db.file), size) if db.file is not None and (size := log_size(db.file)) else None


def save_plugins(key: str, db: Location, folder: Path) -> list[Path]:
    """Write the plugin files of a run to a folder, and return their paths.

    Raises:
        UsageError: the run is unknown or has no such plugins, or a different file of the same name exists.
        StorageError: a file cannot be written.
    """
    with open_store(db) as store:
        plugins = store.get(key).environment.facts.get("plugins", ())
        refuse_file(folder)
        digests = {name: digest for plugin in plugins for name, digest in plugin["files"].items()}
        contents = store.sources(list(digests.values()))
    if not digests:
        raise UsageError("this run has no plugins other than the built-in ones")
    files = {folder / name: contents[digest] for name, digest in digests.items() if digest in contents}
    for file, content in files.items():
        if not file.resolve().is_relative_to(folder.resolve()):
            raise UsageError(f"{file} is outside of {folder}: the run's record is damaged")
        if file.exists() and (not file.is_file() or file.read_bytes() != content):
            raise UsageError(f"{file} exists with another content and is left as it is: name another folder")
    for file, content in files.items():
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            write_bytes(file, content)
        except OSError as error:
            raise storage_error(file, error) from error
    return list(files)
