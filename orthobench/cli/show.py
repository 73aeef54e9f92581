"""`orthobench show`: show one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orthobench.cli import completion
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.system.location import Location

if TYPE_CHECKING:
    from orthobench.store import Run, Segment, Store, Weights
    from orthobench.store.test_lengths import ByLength


def command(
    run: Annotated[
        str,
        typer.Argument(
            metavar="RUN",
            help="The run's key, or its first digits; `orthobench ls` lists them.",
            autocompletion=completion.runs,
        ),
    ],
    db: Database = DEFAULT_DATABASE,
    save_plugins: Annotated[
        Path | None,
        typer.Option(
            "--save-plugins", metavar="DIR", help="Write the run's plugins into this folder, as the run used them."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show one run: its settings, environment, results and command."""
    from orthobench.cli import records
    from orthobench.store import open_store
    from orthobench.store.test_lengths import read_by_length

    with open_store(db) as store:
        stored = store.get(run)
        if save_plugins is not None:
            for file in _save_plugins(store, stored.environment.facts, save_plugins):
                typer.echo(file, err=json)
            if not json:
                return
        record = run_record(store, db, stored)
        segments = store.segments([stored.id])
        measured = read_by_length(store.traces([stored.id]))
    if json:
        records.print_json(record)
        return
    weights = record.pop("weights")
    del record["segments"]
    console = records.console()
    for name, value in record.items():
        if name == "by_length" and measured is not None:
            for line in _length_lines(measured):
                console.print(line, soft_wrap=True)
        elif isinstance(value, dict):
            console.print(name, style="bold")
            for inner, entry in value.items():
                text = _measured(inner, entry) if name == "metrics" else entry
                console.print(f"    {inner:<28} ", end="", soft_wrap=True)
                console.print(records.cell(text), soft_wrap=True)
        elif isinstance(value, list):
            console.print(f"{name:<32} ", style="bold", end="")
            console.print(", ".join(value) or "-", soft_wrap=True)
        elif value is not None:
            console.print(f"{name:<32} ", style="bold", end="")
            console.print(records.cell(value), soft_wrap=True)
    console.print("weights" if weights else f"{'weights':<32} ", style="bold", end="\n" if weights else "")
    if not weights:
        console.print("none are kept")
    for kept_file in weights:
        missing = ", MISSING" if kept_file["exists"] is False else ""
        size = f"iteration {kept_file['iteration']}, {kept_file['bytes']} bytes, sha256 {kept_file['sha256']}"
        console.print(f"    {kept_file['kind']:<28} {kept_file['file']}: {size}{missing}", soft_wrap=True)
    if len(segments) > 1:
        console.print("segments", style="bold")
        for text in _segment_lines(segments):
            console.print(f"    {text}", soft_wrap=True)


def run_record(store: Store, db: Location, run: Run) -> dict[str, Any]:
    """Return all that the database stores about a run, as JSON values."""
    from orthobench.store.result import UNTIMED
    from orthobench.store.test_lengths import read_by_length
    from orthobench.training.settled import status_in

    series: dict[str, list[dict[str, Any]]] = {}
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
            "seconds": run.seconds if run.is_timed else {"all phases": run.wall_seconds, "note": UNTIMED},
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
            "weights": [_weights_record(db, run.key, row) for row in store.weights([run.id])],
            "segments": [_segment(segment) for segment in store.segments([run.id])],
        }
    )


def _length_lines(measured: ByLength) -> Iterator[str]:
    """Yield a heading, and the last values at some lengths; the JSON output contains all lengths."""
    from orthobench.cli import records

    iteration, values = max(measured.values.items())
    shortest, longest = measured.trained
    yield f"{measured.metric} over length, iteration {iteration}, trained on {shortest} to {longest}"
    for length in records.some_lengths(values, measured.trained):
        yield f"    {length:<28} {values[length]:.4g}"


def _weights_record(db: Location, key: str, row: Weights) -> dict[str, Any]:
    """Return the record of a weights file, with its full path or URL and whether it exists (None for a URL)."""
    from orthobench.errors import UsageError
    from orthobench.weights.weights_files import exists, find_weights

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


def _segment_lines(segments: Sequence[Segment]) -> list[str]:
    """Return a line for each segment, with the facts of its environment in which the segments differ."""
    environments = [segment.environment.flat_facts for segment in segments]
    names = dict.fromkeys(name for facts in environments for name in facts)
    changed = [name for name in names if len({str(facts.get(name)) for facts in environments}) > 1]
    return [
        f"from iteration {segment.iteration:<13} {segment.started_at:%Y-%m-%dT%H:%M:%S}, back end "
        + ", ".join([segment.backend or "-", *(f"{name} {facts.get(name)}" for name in changed)])
        for segment, facts in zip(segments, environments, strict=True)
    ]


def _save_plugins(store: Store, facts: dict[str, Any], folder: Path) -> list[Path]:
    """Write the plugin files of a run to a folder, and return their paths.

    Raises:
        UsageError: the run has no such plugins, or a different file of the same name exists.
        StorageError: a file cannot be written.
    """
    from orthobench.errors import UsageError
    from orthobench.system.files import storage_error, write_bytes
    from orthobench.system.kinds import refuse_file

    refuse_file(folder)
    digests = {name: digest for plugin in facts.get("plugins", ()) for name, digest in plugin["files"].items()}
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


def command_of(db: Location, run: Run, seeds: int | None = None) -> str:
    """Return the commands that repeat a run in this folder, or train this number of seeds of its variant.

    If one of its plugin files is not here, or has changed since then, the first command writes them to a new folder.
    """
    from orthobench.errors import shell_command
    from orthobench.store.sqlite import database_words

    own = [plugin for plugin in run.environment.facts.get("plugins", ()) if "path" in plugin]
    own = [plugin for plugin in own if ".py:" in plugin.get("layer", ".py:")]  # not of a module or notebook
    if all(_is_here(plugin) for plugin in own):
        return reproduce(run.spec, [plugin["path"] for plugin in own], seeds)
    folder = f"plugins-{run.key}"
    words = database_words(db, writes=False)
    save = shell_command("show", run.key, "--save-plugins", folder, *words)
    saved = [f"{folder}/{next(iter(plugin['files']))}" for plugin in own]
    return f"{save} && {reproduce(run.spec, saved, seeds)}"


def _is_here(plugin: dict[str, Any]) -> bool:
    """Return whether a plugin's file has the same content as when the run was trained."""
    from orthobench.plugins.sources import hash_of

    try:
        return bool(hash_of(Path(plugin["path"]).read_bytes()) == next(iter(plugin["files"].values())))
    except OSError:
        return False


def reproduce(spec: dict[str, Any], plugin_files: Sequence[str] = (), seeds: int | None = None) -> str:
    """Return a command that repeats the run even if the defaults change, or trains this number of seeds."""
    from orthobench.arrays.words import word_of
    from orthobench.errors import shell_command
    from orthobench.papers import experiments
    from orthobench.settings import merged_settings, text

    settings = merged_settings(spec)
    papers = set().union(*(each.settings for each in experiments(spec["task"], spec["model"])))
    if papers - settings.keys():  # records omit neutral values, which a paper's value would replace
        settings = _neutral(spec) | settings
    words = [word for name, value in settings.items() for word in ("-s", f"{name}={text(value)}")]
    words += [word for file in plugin_files for word in ("--plugin", file)]
    task = word_of(spec["task"], settings)
    if seeds is None:
        return shell_command("run", task, spec["model"], "--seed", spec["seed"], *words)
    return shell_command("sweep", task, "--models", spec["model"], "--seeds", seeds, *words)


def _neutral(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the neutral settings, which a record may omit; nothing if the plugins are not installed."""
    from orthobench.errors import UsageError
    from orthobench.plugins import Catalog
    from orthobench.task import TrainingSettings

    catalog = Catalog()
    try:
        task, model = (catalog.load(kind, spec[kind]).Settings for kind in ("task", "model"))
    except UsageError:
        return {}
    return {**task.neutral(), **model.neutral(), **TrainingSettings.neutral()}


def _measured(name: str, points: list[dict[str, Any]]) -> str:
    from orthobench.metric import why_undefined

    why = why_undefined(name.partition("/")[2])
    return _last(points) if why is None else f"not defined: {why}"


def _last(points: list[dict[str, Any]]) -> str:
    first, last = points[0], points[-1]
    return f"{first['value']:.4g} -> {last['value']:.4g} ({len(points)} points)"
