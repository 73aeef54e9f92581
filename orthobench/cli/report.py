"""`orthobench report`: the page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, ModelFilter, TaskFilter


def command(
    html: Annotated[bool, typer.Option("--html", help="Write one self-contained page.")] = False,
    out: Annotated[Path, typer.Option("-o", "--out", help="The page's file.")] = Path("reports/report.html"),
    task: TaskFilter = None,
    model: ModelFilter = None,
    paper: Annotated[str | None, typer.Option("--paper", metavar="KEY", help="Only this paper's pages.")] = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write the page: measured beside printed.

    One file that opens without a network: learning curves, tables, orthogonality, gradient norms.
    """
    from orthobench.errors import UsageError

    if not html:
        raise UsageError("say which kind of report: --html")
    from orthobench.plugins import Catalog
    from orthobench.report import write_html
    from orthobench.store import open_store
    from orthobench.sweep.paper import variant_keys

    with open_store(db) as store:
        keys, _ = variant_keys(Catalog())
        path = write_html(store, out, task, model, paper, keys)
    typer.echo(path)
