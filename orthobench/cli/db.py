"""`orthobench db`: the database itself: look at it, upgrade, copy, join and export it."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, Json, ModelFilter, TaskFilter, checkpoint_root

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="The database: look at it, copy, join, export.")


@app.command()
def info(db: Database = DEFAULT_DATABASE, json: Json = False) -> None:
    """Show schema, size, runs by state, machines, and whether the file is in order; exit code 1 if it is not."""
    from rich.filesize import decimal

    from orthobench.cli import records
    from orthobench.store import Status, Store
    from orthobench.store.describe import describe
    from orthobench.store.open import HEAD, make_engine
    from orthobench.training.checkpoint import checkpoints_at
    from orthobench.training.locks import is_locked

    found = describe(db)
    root = checkpoint_root(db)
    states: dict[str, int] = {}
    with Store(make_engine(db)) as store:
        for key, status in found.runs:
            cut_off = status == Status.RUNNING and not is_locked(store, checkpoints_at(root, key))
            state = Status.INTERRUPTED if cut_off else status
            states[state] = states.get(state, 0) + 1
    if json:
        records.print_json({**asdict(found), "database": db, "newest_schema": HEAD, "runs": states})
    else:
        age = {-1: ", older than this program's: `orthobench db upgrade`", 0: "", 1: ", newer than this program's"}
        order = (found.schema > HEAD) - (found.schema < HEAD)
        typer.echo(f"{db}: {found.kind}, schema {found.schema}{age[order]}")
        if found.bytes is not None:
            typer.echo(f"size: {decimal(found.bytes)}")
        counts = ", ".join(f"{count} {state}" for state, count in sorted(states.items()))
        typer.echo(f"runs: {len(found.runs)}" + (f" ({counts})" if counts else ""))
        others = ", ".join(f"{count} {name}" for name, count in found.rows.items() if name != "run")
        typer.echo(f"rows: {others}")
        for machine in found.machines:
            what = [machine["accelerator"], machine["cpu"], f"{machine['cores']} cores", machine["platform"]]
            typer.echo(f"machine: {', '.join(filter(None, what))}: {machine['runs']} runs")
        typer.echo(f"integrity: {'; '.join(found.problems) or 'ok'}")
    if found.problems:
        raise typer.Exit(1)


@app.command()
def upgrade(db: Database = DEFAULT_DATABASE) -> None:
    """Bring the schema up to date; a copy of the old file is put beside it."""
    from orthobench.errors import UsageError
    from orthobench.store import open_store
    from orthobench.store.describe import describe
    from orthobench.store.open import HEAD, backup_of, sqlite_file

    found = describe(db)
    if found.problems:
        raise UsageError(f"{db} is damaged and is left as it is: {'; '.join(found.problems)}")
    open_store(db).close()
    if found.schema == HEAD:
        typer.echo(f"{db} has schema {HEAD} already")
    else:
        file = sqlite_file(db)
        old = f"; the old one is {backup_of(file, found.schema)}" if file else ""
        typer.echo(f"{db}: schema {found.schema} -> {HEAD}{old}")


@app.command()
def backup(
    file: Annotated[Path, typer.Argument(help="The new file.")],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Copy the database to a new SQLite file, as it is at one moment; runs may go on meanwhile."""
    from orthobench.store.merge import copy_to_file

    copy_to_file(db, file)
    typer.echo(f"{db} is copied to {file}")


@app.command()
def merge(
    sources: Annotated[list[str], typer.Argument(metavar="FROM...", help="Databases: files or SQLAlchemy URLs.")],
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Bring the runs of other databases into this one, each once; the others stay as they are.

    Of a run that both have, the one that got further is kept: finished, diverged, most iterations, the one here.
    """
    from orthobench.errors import UsageError
    from orthobench.store import open_store
    from orthobench.store.merge import merge as join
    from orthobench.store.merge import reading
    from orthobench.store.open import check_writable, is_same
    from orthobench.training.checkpoint import checkpoints_at
    from orthobench.training.locks import is_locked

    for location in sources:
        if is_same(location, db):
            raise UsageError(f"{location} is the database that all are brought into: name another")
    check_writable(db)
    root = checkpoint_root(db)
    with ExitStack() as opened:
        # All of them first: a mistake in the last name is told before anything is made.
        stores = [opened.enter_context(reading(location)) for location in sources]
        store = opened.enter_context(open_store(db, create=True))
        for location, source in zip(sources, stores, strict=True):
            done = join(source, store, lambda key: is_locked(store, checkpoints_at(root, key)))
            rows = ", ".join(f"{count} {name}" for name, count in done.rows.items() if count)
            typer.echo(
                f"{location}: {len(done.added)} runs added, {len(done.replaced)} replaced by one that got further, "
                f"{len(done.kept)} known" + (f"; rows: {rows}" if rows else "")
            )


@app.command()
def export(
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder for runs.* and metrics.*.")],
    form: Annotated[Literal["csv", "json", "parquet"], typer.Option("--format", help="The files' form.")] = "csv",
    task: TaskFilter = None,
    model: ModelFilter = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write runs and metrics as tables for other programs."""
    from orthobench.errors import UsageError
    from orthobench.store.export import export as write
    from orthobench.store.merge import reading

    with reading(db) as store:
        runs = store.runs(task=task, model=model)
        if not runs:
            raise UsageError(f"{db} has no such runs: `orthobench ls` lists those it has")
        files = write(store, runs, folder, form)
    typer.echo(f"{len(runs)} runs in {' and '.join(map(str, files))}")
