"""`orthobench check`: compare runs of today with the baseline's numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli.options import LARGEST_SEED, Backend, DataFolder, Device, Json, PluginFiles
from orthobench.sweep import MAX_SEEDS


def command(
    baseline: Annotated[Path, typer.Argument(help="The baseline.")] = Path("checks/baseline.toml"),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this run, such as adding/lstm; repeatable.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds, not those it names.")
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option("--first-seed", min=0, max=LARGEST_SEED - MAX_SEEDS, help="As many, from this one on."),
    ] = None,
    db: Annotated[
        str | None, typer.Option("--db", help="Keep the runs in this database, and take those in it; else a new one.")
    ] = None,
    db_only: Annotated[bool, typer.Option("--db-only", help="Train nothing: take what the database has.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Write what comes out into the baseline.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why the baseline changes; kept in it.")] = None,
    fail_on_speed: Annotated[bool, typer.Option("--fail-on-speed", help="Fail on slower steps, too.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a Markdown table.")] = None,
    data_dir: DataFolder = None,
    device: Device = "auto",
    backend: Backend = "auto",
    plugin: PluginFiles = None,
    json: Json = False,
) -> None:
    """Compare runs of today with the baseline's numbers.

    Exit code 0: as good or better; 1: worse; 2: wrong usage; 3: could not be measured or decided.
    """
    from orthobench import api
    from orthobench.check import render
    from orthobench.check.baseline import check_folder, measured_file, write_text
    from orthobench.check.update import MissingValueError
    from orthobench.cli import records
    from orthobench.cli.display import resumable
    from orthobench.errors import UsageError

    if update and not (reason and reason.strip()):
        raise UsageError("--update needs --reason '...': it is kept in the baseline for its readers")
    if reason and not update:
        raise UsageError("--reason belongs to --update: give both")
    for file in (junit, markdown, measured_file(baseline) if update else None):
        if file is not None:
            check_folder(file)
    options = api.ExecutionOptions(device=device, backend=backend, plugins=tuple(plugin or ()), data_folder=data_dir)
    with resumable(hint="; the same command goes on from here" if db else "") as display:
        result = api.check(
            baseline,
            only=only or (),
            seeds=seeds,
            first_seed=first_seed,
            db=db,
            db_only=db_only,
            for_update=update,
            fail_on_speed=fail_on_speed,
            options=options,
            display=display,
        )
    findings = result.findings
    if update:
        typer.echo("beside the baseline as it was:", err=True)
    if json:
        records.print_json(render.as_json(findings))
    else:
        records.console().print(render.table(findings))
        typer.echo(render.summary(findings))
    for file, text in ((junit, render.junit), (markdown, render.markdown)):
        if file is not None:
            write_text(file, text(findings))
    if not update:
        raise typer.Exit(result.exit_code)
    try:
        warnings = result.update_baseline(str(reason))
    except MissingValueError as error:
        typer.echo(f"{error}; {baseline} is as it was", err=True)
        raise typer.Exit(3) from None
    typer.echo(f"{measured_file(baseline)}: {len(result.runs)} run{'s' * (len(result.runs) != 1)} written", err=True)
    for warning in warnings:
        typer.echo(warning, err=True)
