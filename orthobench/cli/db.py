"""`orthobench db`: inspect, upgrade, repair, copy, merge and export the database."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli import Command, CommandGroup
from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.merge import command as merge
from orthobench.cli.merge import copied_weights
from orthobench.cli.options import DEFAULT_DATABASE, Database, Json, WeightsPlace, confirm, print_help
from orthobench.errors import UsageError, counted
from orthobench.options.arguments import RunsFormat
from orthobench.system.cycles import without_cycle_search
from orthobench.system.location import Location

app = typer.Typer(
    add_completion=False,
    cls=CommandGroup,
    callback=print_help,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="Inspect, upgrade, repair, copy, merge or export the database.",
)


@app.command(cls=Command)
@without_cycle_search()
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
    from collections import Counter

    from rich.filesize import decimal

    from orthobench.cli import records
    from orthobench.store import Store
    from orthobench.store.describe import describe_database
    from orthobench.store.open import HEAD, open_engine
    from orthobench.store.result import is_key
    from orthobench.store.sqlite import is_protected, summary
    from orthobench.training.checkpoint import checkpoint_bytes, checkpoint_root
    from orthobench.training.settled import current_status
    from orthobench.weights.copy import is_elsewhere
    from orthobench.weights.weights_files import missing_weights, weights_folder

    content = describe_database(db, check)
    root = checkpoint_root(db)
    with Store(open_engine(db)) as store:
        states = Counter(
            str(current_status(store, root, key, status) if is_key(key) else status) for key, status in content.runs
        )
        weights = store.weights() if "weights" in content.rows else []
        missing = missing_weights(db, {run.id: run.key for run in store.runs(brief=True)}, weights) if weights else []
    folders = sorted({str(row.path.parent if is_elsewhere(row) else weights_folder(db).root) for row in weights})
    lost = sum(row.bytes for row in missing)
    files, size = len(weights) - len(missing), sum(row.bytes for row in weights) - lost
    # Only those next to a file, because nobody knows where a server's runs had theirs.
    sizes = checkpoint_bytes(root) if db.file is not None and isinstance(root, Path) else {}
    records.echo_log(db)
    if json:
        shown = {
            "database": str(db),
            "newest_schema": HEAD,
            "runs": dict(states),
            "weights": {"files": files, "bytes": size, "missing": len(missing), "folders": folders},
            "checkpoints": {"runs": len(sizes), "bytes": sum(sizes.values())},
        }
        records.print_json(asdict(content) | shown)
    else:
        age = {-1: ", older than this program's: `orthobench db upgrade`", 0: "", 1: ", newer than this program's"}
        order = (content.schema > HEAD) - (content.schema < HEAD)
        file = db.file
        protection = ", protected" if file is not None and is_protected(file) else ""
        typer.echo(f"{db}: {content.kind}, schema {content.schema}{age[order]}{protection}")
        if content.bytes is not None:
            typer.echo(f"size: {decimal(content.bytes)}")
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        typer.echo(f"runs: {len(content.runs)}" + (f" ({counts})" if counts else ""))
        if weights:
            absent = f"; missing: {counted(len(missing), 'file')}, {decimal(lost)}" if missing else ""
            typer.echo(f"weights: {counted(files, 'file')}, {decimal(size)}, in {', '.join(folders)}{absent}")
        if sizes:
            typer.echo(f"checkpoints: {counted(len(sizes), 'run')}, {decimal(sum(sizes.values()))}, in {root}")
        others = ", ".join(f"{count} {name}" for name, count in content.rows.items() if name != "run")
        typer.echo(f"rows: {others}")
        for machine in content.machines:
            parts = [machine["accelerator"], machine["cpu"], f"{machine['cores']} cores", machine["platform"]]
            typer.echo(f"machine: {', '.join(filter(None, parts))}: {counted(machine['runs'], 'run')}")
        unread = f", without the rows of {' and '.join(content.unread)}: --check reads them" if content.unread else ""
        typer.echo(f"integrity: {summary(content.problems) or 'ok'}{unread}")
    if content.problems:
        raise typer.Exit(1)


@app.command(cls=Command)
def upgrade(db: Database = DEFAULT_DATABASE) -> None:
    """Upgrade the schema to the newest version. The old file is kept as a backup next to it."""
    from orthobench.store import Store, open_store
    from orthobench.store.damage import refuse
    from orthobench.store.describe import describe_database
    from orthobench.store.open import HEAD, backup_of, open_engine

    content = describe_database(db)
    with Store(open_engine(db)) as store:
        refuse(store.engine)
    open_store(db).close()
    if content.schema == HEAD:
        typer.echo(f"{db} has schema {HEAD} already")
    else:
        file = db.file
        old = f"; the old file is kept as {backup_of(file, content.schema)}" if file else ""
        typer.echo(f"{db}: schema {content.schema} -> {HEAD}{old}")


@app.command(cls=Command)
def repair(
    db: Database = DEFAULT_DATABASE,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the rows, and change nothing.")] = False,
) -> None:
    """Repair or remove rows that cannot be read. The old file is kept as a backup next to it.

    A row is repaired if the rest of the database determines its values. A run that cannot be repaired is removed with
    its rows, and the same command trains it again.
    """
    from orthobench.api import repair as repair_rows

    repaired = repair_rows(db, dry_run=dry_run)
    for row in repaired.rows:
        typer.echo(row)
    if not repaired.rows:
        typer.echo(f"{db} has no broken rows: nothing is changed")
        return
    kept = sum(row.changes is not None for row in repaired.rows)
    would = "would be " if dry_run else ""
    copy = f"; {repaired.copy} is the backup" if repaired.copy else ""
    typer.echo(f"{db}: {would}repaired: {counted(kept, 'row')}, {would}removed: {len(repaired.rows) - kept}{copy}")


@app.command(cls=Command)
def protect(
    db: Database = DEFAULT_DATABASE,
    off: Annotated[bool, typer.Option("--off", help="End the protection.")] = False,
) -> None:
    """Protect reference results. Commands without --db then add their runs to runs.db and not to results.db."""
    from orthobench.store import open_store
    from orthobench.store.sqlite import protect as set_protection

    file = db.file
    if file is None:
        raise UsageError("a server's database is never a default: protection is for SQLite files")
    open_store(db).close()
    set_protection(file, not off)
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
    from orthobench.store import open_store
    from orthobench.store.merge import copy_to_file, opened_unchanged
    from orthobench.weights.copy import copy_weights, is_elsewhere
    from orthobench.weights.weights_files import weights_folder

    if weights:
        with opened_unchanged(db):  # before the copy, because only a database that can be read names its weights
            pass
    copy_to_file(db, file)
    typer.echo(f"{db} is copied to {file}")
    if weights:
        with open_store(file) as store:
            copied, missing = copy_weights(db, Location.of(file), store, [run.key for run in store.runs(brief=True)])
        typer.echo(copied_weights(copied, missing))
        return
    count = 0
    with (
        suppress(UsageError),
        opened_unchanged(file) as store,
    ):  # a newer version of orthobench may have written the database
        count = sum(not is_elsewhere(record) for record in store.weights())
    if count:
        typer.echo(f"{counted(count, 'file')} of weights left in {weights_folder(db).root}: --weights copies them, too")


app.command("merge", cls=Command)(merge)


@app.command(cls=Command)
@filtered()
def drop_weights(
    filters: Filters = NO_FILTERS,
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
    from rich.filesize import decimal

    from orthobench.api import open_results
    from orthobench.cli import records

    with open_results(db) as results:
        chosen = results.weights(filters.texts(), kinds=kind, older_than=older_than)
        headings = ("run", "kind", "iteration", "bytes", "path")
        if chosen:
            rows = [[run.key, row.kind, str(row.iteration), str(row.bytes), str(row.path)] for run, row in chosen]
            records.print_columns(headings, rows)
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

    The views runs_flat, metrics_flat and gradient_norms spare most joins, and traces_flat has all vectors by entry. The
    documentation's page "Query the database" describes all tables, with examples. A query changes nothing.
    """
    from orthobench.cli import records
    from orthobench.store.query import query as answer

    if csv and json:
        raise UsageError("--csv and --json are two formats: choose one")
    table = answer(db, sql)
    if json:
        records.print_json([dict(zip(table.columns, row, strict=True)) for row in table.rows])
    elif csv:
        import pandas

        from orthobench.store.export_tables import as_csv

        typer.echo(as_csv(pandas.DataFrame(list(table.rows), columns=table.columns)), nl=False)
    else:
        records.print_columns(
            table.columns, [["" if value is None else str(value) for value in row] for row in table.rows]
        )


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
    filters: Filters = NO_FILTERS,
    vectors: Annotated[
        bool, typer.Option("--vectors", help="Write the vectors too: gradient norms through time, heat maps.")
    ] = False,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write runs, segments and metrics as tables. With --to, send the runs to a tracking program.

    A second export with --to adds nothing twice; see docs/sinks.md. `orthobench ls --help` explains the filters.
    """
    from orthobench.analysis.selection import select_runs
    from orthobench.sinks.export_runs import export as send
    from orthobench.sinks.targets import parse_target
    from orthobench.store.export_tables import export as write
    from orthobench.store.merge import opened_unchanged
    from orthobench.training.settled import status_in

    if to and (folder is not None or form != "csv" or vectors):
        raise UsageError("--to names the destination: leave DIR, --format and --vectors out")
    targets, selected = list(dict.fromkeys(map(parse_target, to or ()))), filters.conditions()
    with opened_unchanged(db) as store:
        status_of = status_in(store, db)
        runs = select_runs(store.runs(), selected, status_of)
        if not runs:
            raise UsageError(f"{db} holds no runs to export: train one with `orthobench run`")
        for target in targets:
            typer.echo(send(store, runs, target, status_of))
        if targets:
            return
        if folder is None:
            raise UsageError("name a folder for the tables, or a destination: orthobench db export --to tensorboard")
        files = write(store, runs, folder, form, vectors)
    typer.echo(f"{counted(len(runs), 'run')} in {', '.join(map(str, files))}")
