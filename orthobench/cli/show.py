"""`orthobench show`: show one run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from orthobench import api
from orthobench.cli import completion, records
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json
from orthobench.display import print_json


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
    save: Annotated[
        Path | None,
        typer.Option(
            "--save-plugins", metavar="DIR", help="Write the run's plugins into this folder, as the run used them."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Show a run: settings, environment, results, command."""
    if save is not None:
        for file in api.stored.save_plugins(run, db, save):
            typer.echo(file, err=json)
        if not json:
            return
    record = api.stored.show_run(run, db)
    if json:
        print_json(record)
        return
    weights, segments = record.pop("weights"), record.pop("segments")
    console = records.console()
    for name, value in record.items():
        if name == "by_length":
            for line in _length_lines(**value):
                console.print(line, soft_wrap=True)
        elif isinstance(value, dict):
            console.print(name, style="bold")
            for inner, entry in value.items():
                text = _measured(inner, entry) if name == "metrics" else entry
                console.print(f"    {records.harmless(inner):<28} ", end="", soft_wrap=True)
                console.print(records.cell(text), soft_wrap=True)
        elif isinstance(value, list):
            console.print(f"{name:<32} ", style="bold", end="")
            console.print(records.cell(value) or "-", soft_wrap=True)
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


def _length_lines(metric: str, trained: tuple[int, int], values: dict[int, dict[int, float]]) -> Iterator[str]:
    """Yield a heading, and the last values at some lengths; the JSON output contains all lengths."""
    iteration, last = max(values.items())
    shortest, longest = trained
    yield f"{metric} over length, iteration {iteration}, trained on {shortest} to {longest}"
    for length in records.some_lengths(last, trained):
        yield f"    {length:<28} {last[length]:.4g}"


def _segment_lines(segments: Sequence[dict[str, Any]]) -> list[str]:
    """Return a line for each segment, with the facts of its environment in which the segments differ."""
    environments = [
        segment["environment"]
        | {f"package {name}": version for name, version in segment["environment"].get("packages", {}).items()}
        for segment in segments
    ]
    names = dict.fromkeys(name for facts in environments for name in facts if name != "packages")
    changed = [name for name in names if len({str(facts.get(name)) for facts in environments}) > 1]
    return [
        f"from iteration {segment['iteration']:<13} {segment['started_at']}, back end "
        + ", ".join([segment["backend"] or "-", *(f"{name} {facts.get(name)}" for name in changed)])
        for segment, facts in zip(segments, environments, strict=True)
    ]


def _measured(name: str, points: list[dict[str, Any]]) -> str:
    why = api.stored.why_undefined(name.partition("/")[2])
    return _last(points) if why is None else f"not defined: {why}"


def _last(points: list[dict[str, Any]]) -> str:
    first, last = points[0], points[-1]
    return f"{first['value']:.4g} -> {last['value']:.4g} ({len(points)} points)"
