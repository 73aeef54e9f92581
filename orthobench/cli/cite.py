"""`orthobench cite`: the papers behind a run, model or task, as BibTeX."""

from __future__ import annotations

from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import DEFAULT_DATABASE, Database, PluginFiles, spelled


def command(
    names: Annotated[
        list[str],
        typer.Argument(
            metavar="RUN|MODEL|TASK...",
            help="Models, tasks or keys of runs; model/lstm names the kind as well.",
            autocompletion=completion.cited,
        ),
    ],
    plugin: PluginFiles = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Print BibTeX of the papers of runs, models and tasks.

    For a run, cite its model, task and data set, and the version of orthobench that trained it.
    """
    entries = api.cite(*names, db=db, plugins=plugin or ())
    # Only the comments, because backquotes in an entry are LaTeX's.
    typer.echo("\n\n".join(spelled(entry) if entry.startswith("%") else entry for entry in entries))
