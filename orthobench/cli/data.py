"""`orthobench data`: the data sets, and how they get here."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli.options import DataFolder, Json

app = typer.Typer(no_args_is_help=True, rich_markup_mode=None, help="Data sets: list, download, import, verify.")

Name = Annotated[str, typer.Argument(help="The data set; `orthobench data list` lists them.")]


@app.command("list")
def list_(data_dir: DataFolder = None, json: Json = False) -> None:
    """List the data sets: what is here, where, its size and licence."""
    from orthobench.cli import records
    from orthobench.data import data_folder, datasets

    sizes = {
        name: sum(file.stat().st_size for file in one.folder().rglob("*") if file.is_file()) or one.size
        for name, one in datasets().items()
    }
    if json:
        records.print_json(
            [
                {
                    "name": name,
                    "title": one.title,
                    "here": one.present(),
                    "folder": str(one.folder()),
                    "bytes": sizes[name],
                    "download": bool(one.downloads),
                    "licence": one.licence,
                    "home": one.home,
                }
                for name, one in datasets().items()
            ]
        )
        return
    from rich.filesize import decimal
    from rich.table import Table

    table = Table("name", "here", "size", "licence", "home", box=None)
    for name, one in datasets().items():
        table.add_row(name, "yes" if one.present() else "no", decimal(sizes[name]), one.licence, one.home)
    records.console().print(table)
    typer.echo(f"in {data_folder()}")


@app.command()
def get(name: Name, data_dir: DataFolder = None) -> None:
    """Download a data set, checked by its checksums; what was cut off goes on."""
    from orthobench.cli.progress import Downloads
    from orthobench.data import dataset

    wanted = dataset(name)
    if wanted.present() and not wanted.verify():
        typer.echo(f"{name} is here already: {wanted.folder()}")
        return
    with Downloads() as downloads:
        wanted.get(downloads.report)
    typer.echo(f"{name} is in {wanted.folder()}")


@app.command("import")
def import_(
    name: Name,
    path: Annotated[Path, typer.Argument(help="The files you have: a folder, or an archive.")],
    data_dir: DataFolder = None,
) -> None:
    """Take in a data set's files that you already have; they are copied."""
    from orthobench.data import dataset

    wanted = dataset(name)
    wanted.bring_in(path)
    typer.echo(f"{name} is in {wanted.folder()}")


@app.command()
def verify(
    name: Annotated[str | None, typer.Argument(help="The data set; without one, all that are here.")] = None,
    data_dir: DataFolder = None,
) -> None:
    """Check that data sets are whole and the canonical ones; exit code 1 if one is not."""
    from orthobench.data import dataset, datasets

    chosen = [dataset(name)] if name else [one for one in datasets().values() if one.present()]
    problems = {one.name: one.verify() for one in chosen}
    for which, lines in problems.items():
        typer.echo(f"{which}: {'; '.join(lines) or 'as it should be'}")
    if not problems:
        typer.echo("no data set is here: orthobench data get NAME")
    if any(problems.values()):
        raise typer.Exit(1)
