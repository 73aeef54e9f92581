"""`orthobench report`: write the page, tables, figures or the account of a reproduction."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli.filters import filtered
from orthobench.cli.labels import AllVersions, Labels, read_labels
from orthobench.cli.options import DEFAULT_DATABASE, Database, split_names
from orthobench.errors import UsageError
from orthobench.options.arguments import ReportFormat


@filtered()
def command(
    form: Annotated[
        ReportFormat,
        typer.Option(
            "--format",
            help="html: one page; csv, json, markdown, latex: tables, and a figure's curves; svg, png, pdf, pgf: "
            "figures, 3.25 and 6.75 inches wide; reproduction: REPRODUCTION.md with published and measured results, "
            "claims, machines and hours.",
        ),
    ] = "html",
    html: Annotated[bool, typer.Option("--html", help="Short for --format html, which is the default.")] = False,
    out: Annotated[
        Path | None,
        typer.Option(
            "-o", "--out", metavar="PATH", help="The file of the page or the tables, or the folder of the figures."
        ),
    ] = None,
    paper: Annotated[str | None, typer.Option("--paper", metavar="KEY", help="Restrict to this paper.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", metavar="NUMBER", help="Restrict to this table (with --paper).")
    ] = None,
    figure: Annotated[
        str | None, typer.Option("--figure", metavar="NUMBER", help="Restrict to this figure (with --paper).")
    ] = None,
    commentary: Annotated[
        Path | None,
        typer.Option(
            "--commentary",
            metavar="FILE",
            help="Show your text, and your remarks on verdicts, from a TOML file on the page or in REPRODUCTION.md.",
        ),
    ] = None,
    columns: Annotated[
        list[str] | None,
        typer.Option(
            "--columns",
            metavar="A,B",
            help="Columns of tables of tasks: model, variant, parameters, metric, seeds, diverged, end, final, best, "
            "at_best_validation, better_than_baseline, tests_not_better_than_baseline, solved, seconds_per_epoch, "
            "timed_on, backends, tags, metrics and settings.",
        ),
    ] = None,
    bold_best: Annotated[
        bool, typer.Option("--bold-best", help="In LaTeX and Markdown: print the best value of each metric in bold.")
    ] = False,
    unmeasured: Annotated[
        bool, typer.Option("--unmeasured", help="In LaTeX: also print the numbers of papers that are not measured.")
    ] = False,
    label: Labels = None,
    all_versions: AllVersions = False,
    where: Sequence[str] = (),
    db: Database = DEFAULT_DATABASE,
) -> None:
    """Write measured results next to the published ones.

    --html writes reports/report.html: one page that needs no network, with the papers' tables and figures,
    leaderboards and every run. Tables and figures are those of --paper, or else of all measured tasks; tables go to
    the terminal unless --out names a file. `orthobench ls --help` explains the filters.
    """
    if html and form != "html":
        raise UsageError(f"--html and --format {form} are different reports: give one of them")
    written = api.report(
        db,
        out,
        form=form,
        paper=paper,
        table=table,
        figure=figure,
        commentary=commentary,
        columns=split_names(columns, "--columns model,end") if columns else (),
        bold_best=bold_best,
        unmeasured=unmeasured,
        labels=read_labels(label),
        all_versions=all_versions,
        where=where,
    )
    if isinstance(written, str):
        print(written, end="")  # typer would print UTF-8 whatever the encoding
    else:
        lines = "\n".join(map(str, written if isinstance(written, list) else [written]))
        typer.echo(lines, err=out is not None and _is_output(out))


def _is_output(file: Path) -> bool:
    """Return whether the report went where this program prints, as /dev/stdout is, so that nothing else may follow."""
    return os.path.samestat(file.stat(), os.fstat(1))
