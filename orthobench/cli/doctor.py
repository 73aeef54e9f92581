"""`orthobench doctor`: examine this installation, and say what to do."""

from __future__ import annotations

import textwrap
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import records
from orthobench.cli.options import DEFAULT_DATABASE, Database, DataFolder, Json, spelled
from orthobench.display import print_json


def command(
    retest: Annotated[bool, typer.Option("--retest", help="Compare all kernels with the reference.")] = False,
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    json: Json = False,
) -> None:
    """Examine this installation: devices, compilers, kernels, data.

    Caches, the database and versions are examined too. Each CUDA kernel is compared with the reference
    once a device, driver and version.

    Exit code 0: nothing needs action; 1: something does.
    """
    diagnosis = api.doctor(db, data_folder=data_dir, retest=retest)
    if json:
        print_json(diagnosis.as_json())
        raise typer.Exit(diagnosis.exit_code)
    section, width = "", records.console().width - 6
    for finding in diagnosis.findings:
        if finding.section != section:
            section = finding.section
            typer.echo(section)
        mark = {"ok": " ", "note": "-", "action": "!"}[finding.level]
        words = textwrap.wrap(f"{mark} {finding.subject}: {spelled(finding.text)}", width, break_on_hyphens=False)
        typer.echo(textwrap.indent("\n    ".join(words), "  "))
        if finding.fix:
            typer.echo(f"      -> {spelled(finding.fix)}")
    count = len(diagnosis.actions)
    typer.echo("")
    if count:
        typer.echo(f"{count} finding{'s need' if count > 1 else ' needs'} action, marked with !")
    else:
        typer.echo("nothing needs action")
    raise typer.Exit(diagnosis.exit_code)
