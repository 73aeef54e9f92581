"""`orthobench db`: inspect, upgrade, repair, copy, merge and export the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from orthobench import api
from orthobench.cli import Command
from orthobench.cli.filters import filtered
from orthobench.cli.merge import command as merge
from orthobench.cli.merge import copied_weights
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json, WeightsPlace, confirm, print_help
from orthobench.cli.records import TEXT, echo_log, print_table
from orthobench.display import print_json
from orthobench.errors import UsageError, counted
from orthobench.options.arguments import RunsFormat

app = typer.Typer(
    add_completion=False,
    callback=print_help,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Inspect, upgrade, repair, copy, merge or export the database.",
)


@app.command(cls=Command)
def info(
    db: Database = DEFAULT_DATABASE,
    check: Annotated[
        bool, typer.Option("--check", help="Read every row, also in a database with more than a million rows.")
    ] = False,
    json: Json = False,
) -> None:
    """Show schema, sizes, runs by status, machines and integrity.

    The sizes are those of the database, of the kept weights and of the checkpoints.

    In a database with more than a million rows, metric values and vectors are only checked with --check. Exit code 1:
    rows are damaged; 2: the database cannot be read.
    """
    described = api.databases.describe(db, check)
    echo_log(db)
    if json:
        print_json(described.record())
    else:
        _print_info(described)
    if described.problems:
        raise typer.Exit(1)


def _print_info(described: api.databases.Info) -> None:
    content, weights = described.content, described.weights
    age = {-1: ", older than this program's: `orthobench db upgrade`", 0: "", 1: ", newer than this program's"}
    protection = ", protected" if described.is_protected else ""
    typer.echo(f"{described.db}: {content.kind}, schema {content.schema}{age[described.age]}{protection}")
    if content.bytes is not None:
        typer.echo(f"size: {decimal(content.bytes)}")
    counts = ", ".join(f"{count} {state}" for state, count in sorted(described.states.items()))
    typer.echo(f"runs: {len(content.runs)}" + (f" ({counts})" if counts else ""))
    if weights["folders"]:
        lost = f"{counted(weights['missing'], 'file')}, {decimal(weights['missing_bytes'])}"
        absent = f"; missing: {lost}" if weights["missing"] else ""
        kept = f"{counted(weights['files'], 'file')}, {decimal(weights['bytes'])}"
        typer.echo(f"weights: {kept}, in {', '.join(weights['folders'])}{absent}")
    if described.checkpoints:
        sizes = f"{counted(len(described.checkpoints), 'run')}, {decimal(sum(described.checkpoints.values()))}"
        typer.echo(f"checkpoints: {sizes}, in {described.checkpoint_folder}")
    others = ", ".join(f"{count} {name}" for name, count in content.rows.items() if name != "run")
    typer.echo(f"rows: {others}")
    for machine in content.machines:
        parts = [machine["accelerator"], machine["processor"], f"{machine['cores']} cores", machine["platform"]]
        typer.echo(f"machine: {', '.join(filter(None, parts))}: {counted(machine['runs'], 'run')}")
    unread = f", without the rows of {' and '.join(content.unread)}: --check reads them" if content.unread else ""
    typer.echo(f"integrity: {described.problems or 'ok'}{unread}")


@app.command(cls=Command)
def upgrade(db: Database = DEFAULT_DATABASE) -> None:
    """Upgrade the schema to the newest version. The old file is kept as a backup next to it."""
    old, new, copy = api.databases.upgrade(db)
    if old == new:
        typer.echo(f"{db} has schema {new} already")
    else:
        typer.echo(f"{db}: schema {old} -> {new}" + (f"; the old file is kept as {copy}" if copy else ""))


@app.command(cls=Command)
def repair(
    file: Annotated[Path, typer.Argument(help="The new file.")],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Copy what SQLite can read of a damaged file to a new one.

    The damaged file stays as it is. Rows of a run that is lost are left out, and the command that trained it trains it
    again. Rename the new file to the old name, so that it finds the kept weights and checkpoints.
    """
    repaired = api.repair(file, db)
    for name, count in repaired.copied.items():
        lost = repaired.lost[name]
        if count or lost != 0:
            not_copied = "others are lost" if lost is None else f"{lost} lost"
            typer.echo(f"{name}: {counted(count, 'row')} copied, {not_copied}")
    typer.echo(f"{file} has what could be read of {db}: rename it to {db} to go on with it")


@app.command(cls=Command)
def protect(
    db: Database = DEFAULT_DATABASE,
    off: Annotated[bool, typer.Option("--off", help="End the protection.")] = False,
) -> None:
    """Protect reference results. Commands without --db then add their runs to runs.db and not to results.db."""
    api.databases.protect(db, not off)
    typer.echo(f"{db} is {'no longer ' if off else ''}protected")


@app.command(cls=Command)
def backup(
    file: Annotated[Path, typer.Argument(help="The new file.")],
    weights: Annotated[
        bool, typer.Option("--weights", help="Copy the kept weights as well, next to the new file.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Copy the database to a new SQLite file. The copy is consistent, also while runs are training."""
    if weights:
        copied, missing = api.databases.backup_with_weights(db, file)
        typer.echo(f"{db} is copied to {file}")
        typer.echo(copied_weights(copied, missing))
        return
    left, folder = api.databases.backup(db, file)
    typer.echo(f"{db} is copied to {file}")
    if left:
        typer.echo(f"{counted(left, 'file')} of weights left in {folder}: --weights copies them, too")


app.command("merge", cls=Command)(merge)


@app.command(cls=Command)
@filtered()
def drop_weights(
    where: Sequence[str] = (),
    kind: Annotated[
        list[str] | None,
        typer.Option("--kind", metavar="best|last|state", help="Restrict to these files; may be repeated."),
    ] = None,
    older_than: Annotated[
        int | None,
        typer.Option("--older-than", min=0, metavar="DAYS", help="Restrict to runs unchanged for this many days."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the files, and remove nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Remove without asking.")] = False,
    weights_at: WeightsPlace = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Remove the kept weights of selected runs.

    Runs are selected by the filters. Their results stay.

    Files that are not next to the database stay, too, unless --weights-at names their place.
    `orthobench ls --help` explains the filters.
    """
    with api.open_results(db) as results:
        chosen = results.weights(where, kinds=kind, older_than=older_than)
        headings = ("run", "kind", "iteration", "bytes", "path")
        if chosen:
            rows = [[run.key, row.kind, str(row.iteration), str(row.bytes), str(row.path)] for run, row in chosen]
            print_table(headings, rows, folds={"path": TEXT})
        total = f"{counted(len(chosen), 'file')}, {decimal(sum(row.bytes for _, row in chosen))}"
        if dry_run or not chosen:
            typer.echo(f"{total} would be removed" if chosen else "there are no such weights: nothing is removed")
            return
        if not yes:
            confirm(f"Remove these {total}?")
        results.drop_weights(chosen, weights_at=weights_at)
    typer.echo(f"{total} removed")


@app.command(cls=Command)
def query(
    sql: Annotated[str, typer.Argument(metavar="SQL", help="One query, in quotes.")],
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    json: Json = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Print the answer to a query in SQL.

    The views runs_flat, metrics_flat and gradient_norms spare most joins, and traces_flat has all vectors by entry.
    docs/runs.md describes them, with examples. A query changes nothing.
    """
    if csv and json:
        raise UsageError("--csv and --json are two formats: choose one")
    table = api.databases.query(db, sql)
    if json:
        print_json([dict(zip(table.columns, row, strict=True)) for row in table.rows])
    elif csv:
        typer.echo(api.databases.csv_of(table), nl=False)
    else:
        print_table(table.columns, [["" if value is None else str(value) for value in row] for row in table.rows])


@app.command(cls=Command)
@filtered()
def export(
    folder: Annotated[
        Path | None,
        typer.Argument(
            metavar="[DIR]", help="Folder for the files runs.*, segments.*, metrics.*; with sqlite: tables.sqlite."
        ),
    ] = None,
    form: Annotated[RunsFormat, typer.Option("--format", help="Format of the files.")] = "csv",
    to: Annotated[
        list[str] | None,
        typer.Option(
            "--to",
            metavar="DESTINATION",
            help="Instead of DIR: tensorboard[:DIR], mlflow[:DIR|URI], trackio[:DIR] or wandb[:DIR]; may be repeated.",
        ),
    ] = None,
    where: Sequence[str] = (),
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Write the vectors too: gradient norms through time, heat maps.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write runs, segments and metrics as tables. With --to, send the runs to a tracking program.

    Each export with --to sends new runs, which in TensorBoard replace the earlier ones; see docs/publish.md.
    `orthobench ls --help` explains the filters.
    """
    if to and (folder is not None or form != "csv" or vectors):
        raise UsageError("--to names the destination: leave DIR, --format and --vectors out")
    if to:
        for target, count in api.databases.export_runs(db, to, where=where):
            typer.echo(f"{counted(count, 'run')} sent to {target}")
        return
    if folder is None:
        raise UsageError("name a folder for the tables, or a destination: orthobench db export --to tensorboard")
    count, files = api.databases.export_tables(db, folder, form, where=where, vectors=vectors)
    typer.echo(f"{counted(count, 'run')} in {', '.join(map(str, files))}")
