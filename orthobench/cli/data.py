"""`orthobench data`: list, download, import and verify data sets."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from rich.filesize import decimal

from orthobench import api, display
from orthobench.cli import Command
from orthobench.cli.options import DataFolder, Json, Quiet, print_help
from orthobench.cli.records import TEXT, print_table
from orthobench.display import print_json
from orthobench.options.data_folder import data_folder

app = typer.Typer(
    add_completion=False,
    callback=print_help,
    invoke_without_command=True,
    rich_markup_mode=None,
    help="List, download, import or verify data sets.",
)

DataSetName = Annotated[str, typer.Argument(help="The data set; `orthobench data list` lists them.")]


@app.command("list", cls=Command)
def list_(data_dir: DataFolder = None, json: Json = False) -> None:
    """List the data sets: presence, size, licence and source."""
    listed = api.data_sets.listed()
    if json:
        print_json(listed)
        return
    rows = [
        (row["name"], "yes" if row["here"] else "no", decimal(row["bytes"]), row["licence"], row["home"])
        for row in listed
    ]
    headings = ("name", "here", "size", "licence", "home")
    print_table(headings, rows, optional=["licence", "home"], folds={"licence": TEXT})
    typer.echo(f"in {data_folder()}")


@app.command(cls=Command)
def get(name: DataSetName, data_dir: DataFolder = None, quiet: Quiet = False) -> None:
    """Download a data set and verify its checksums. An interrupted download resumes."""
    selected = api.data_sets.dataset(name)
    if selected.present() and not selected.verify():
        typer.echo(f"{name} is here already: {selected.folder()}")
        return
    with display.Downloads(quiet) as downloads:
        selected.get(downloads.report)
    typer.echo(f"{name} is in {selected.folder()}")


@app.command("import", cls=Command)
def import_(
    name: DataSetName,
    path: Annotated[Path, typer.Argument(help="A folder or an archive with the files of the data set.")],
    data_dir: DataFolder = None,
    quiet: Quiet = False,
) -> None:
    """Copy the files of a data set from a folder or an archive."""
    selected = api.data_sets.dataset(name)
    selected.check_packages()
    with display.busy(f"importing and checking {name}", path.exists() and not quiet):
        selected.import_files(path)
    typer.echo(f"{name} is in {selected.folder()}")


@app.command(cls=Command)
def verify(
    name: Annotated[str | None, typer.Argument(help="The data set; default: all that are installed.")] = None,
    data_dir: DataFolder = None,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Verify that data sets are complete and canonical. Exit code 1: one is not."""
    selected = (
        [api.data_sets.dataset(name)]
        if name
        else [each for each in api.data_sets.datasets().values() if each.present()]
    )
    problems = {}
    for each in selected:
        each.check_packages()
        with display.busy(f"verifying {each.name}", each.present() and not quiet):
            problems[each.name] = each.verify()
    if json:
        print_json([{"name": each, "problems": lines} for each, lines in problems.items()])
    elif not problems:
        typer.echo("no data set is installed: orthobench data get NAME")
    else:
        for each_name, lines in problems.items():
            typer.echo(f"{each_name}: {'; '.join(lines) or 'complete and unchanged'}")
    if any(problems.values()):
        raise typer.Exit(1)
