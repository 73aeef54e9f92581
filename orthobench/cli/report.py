"""`orthobench report`: the page, its tables and its figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, ModelFilter, TaskFilter

FORMATS = ("html", "csv", "json", "markdown", "latex", "png", "pdf", "reproduction")


def command(
    html: Annotated[bool, typer.Option("--html", help="Write one self-contained page.")] = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print tables as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print tables as JSON.")] = False,
    markdown: Annotated[bool, typer.Option("--markdown", help="Print tables as Markdown.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Print tables as LaTeX, with booktabs.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Write figures as PNG.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write figures as PDF.")] = False,
    account: Annotated[
        bool, typer.Option("--reproduction", help="Write REPRODUCTION.md: printed, measured, claims, machines, hours.")
    ] = False,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", help="The page's or tables' file, or the figures' folder [reports/...]."),
    ] = None,
    task: TaskFilter = None,
    model: ModelFilter = None,
    paper: Annotated[str | None, typer.Option("--paper", metavar="KEY", help="Only this paper.")] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Of the paper, only this table.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", metavar="N", help="Of the paper, only this figure.")] = None,
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Show what was measured beside what was printed.

    --html writes a page that opens without a network: papers' tables and figures, leaderboards, every run. Tables are
    the paper's where one is named, else those of everything measured.
    """
    from orthobench.errors import UsageError

    given = (html, csv, json, markdown, latex, png, pdf, account)
    asked = [name for name, on in zip(FORMATS, given, strict=True) if on]
    if (table or figure) and not paper:
        raise UsageError("--table and --figure are of a paper: add --paper helfrich2018")
    if len(asked) > 1:
        raise UsageError(f"--{' and --'.join(asked)} are different reports: ask for one at a time")
    if not asked:
        raise UsageError(f"say which kind of report, one of --{', --'.join(FORMATS)}")
    (form,) = asked

    from orthobench.plugins import Catalog
    from orthobench.report import load_views, write_html, write_whole
    from orthobench.store import open_store
    from orthobench.sweep.paper import variant_keys

    with open_store(db) as store:
        keys, _ = variant_keys(Catalog())
        if form == "html":
            typer.echo(write_html(store, out or Path("reports/report.html"), task, model, paper, keys))
            return
        conditions, views, studies = load_views(store, task, model, paper, keys)
        if form == "reproduction":
            from orthobench.report import reproduction

            file = out or Path("reports/REPRODUCTION.md")
            text = reproduction.reproduction(conditions, views, studies)
            write_whole(file, reproduction.keep_authors(file, text).encode())
            typer.echo(file.resolve())
            return
    if not paper:
        views = []
    kind, number = ("table", table) if table else ("figure", figure)
    artifact = None
    if number is not None:
        names = [part.artifact.name for view in views for part in view.artifacts]
        artifact = next((name for name in (f"{kind} {number}", number) if name in names), None)
        if artifact is None:
            raise UsageError(f"{paper} has no {kind} {number}; it has {', '.join(names)}")
    if form in ("png", "pdf"):
        from orthobench.report.images import write_images

        image = cast(Literal["png", "pdf"], form)
        for path in write_images(conditions, views, artifact, image, out or Path("reports")):
            typer.echo(path)
        return
    from orthobench.report.export import Format, condition_sheet, sheets, write

    tables = [sheet for view in views for sheet in sheets(view, artifact)]
    if not paper:
        tables = [condition_sheet(condition) for condition in conditions]
    text = write(cast(Format, form), tables)
    if out is None:
        typer.echo(text, nl=False)
    else:
        write_whole(out, text.encode())
        typer.echo(out.resolve())
