"""`orthobench reproduce`: train the runs of a paper, or small versions of its figures with their claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli import completion
from orthobench.cli.options import DEFAULT_DATABASE, DryRun, Quiet, WrittenDatabase, with_options
from orthobench.options.run_options import SweepOptions
from orthobench.planning import MAX_SEEDS

if TYPE_CHECKING:
    from orthobench.api import SmallResult


@with_options(SweepOptions)
def command(
    paper: Annotated[
        str | None,
        typer.Argument(
            metavar="[PAPER]", help="The paper's key, such as helfrich2018.", autocompletion=completion.papers
        ),
    ] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Restrict to this table.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", metavar="N", help="Restrict to this figure.")] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "-m", "--models", metavar="A,B", help="Restrict to these models.", autocompletion=completion.model_list
        ),
    ] = None,
    where: Annotated[
        list[str] | None,
        typer.Option(
            "--where",
            metavar="KEY=VALUE",
            help="Restrict to runs with this task or setting, such as n=170 or n=128,170; may be repeated.",
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option(
            "--scale",
            metavar="F",
            help="Scale epochs, lengths and data by this factor; such runs do not count as the paper's.",
        ),
    ] = 1.0,
    small: Annotated[
        bool,
        typer.Option(
            "--small", help="Train small versions of the figures and check their claims; takes about five minutes."
        ),
    ] = False,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A TOML file with runs of papers, instead of PAPER."),
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="Number of seeds: 0, 1, 2, ... [1].")
    ] = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Train the runs of a paper, or those that a file lists. Options restrict a paper to a table or figure.

    With --small: small versions of the figures of all papers, or of one. Exit code 1 if a claim does not hold.
    """
    from orthobench.papers import find_paper

    if paper is not None:
        find_paper(paper)  # before torch is loaded, which takes seconds

    from orthobench import api
    from orthobench.cli.options import split_names
    from orthobench.cli.records import print_summary
    from orthobench.cli.session_display import TerminalDisplay, report_sweep, resumable
    from orthobench.errors import UsageError
    from orthobench.settings.assignments import parse_conditions
    from orthobench.store import open_store

    restricted = table or figure or models or where or scale != 1
    if small and restricted:
        raise UsageError("--small has its own sizes: leave --table, --figure, --models, --where and --scale out")
    if file is not None and (paper or small or seeds or restricted):
        raise UsageError("--file names the runs already: leave PAPER and its restrictions out, or leave --file out")
    if paper is None and not small and file is None:
        raise UsageError(
            "name a paper, for example `orthobench reproduce helfrich2018`; "
            "the quick check of all figures is `orthobench reproduce --small`"
        )
    with resumable(TerminalDisplay(quiet, plan=dry_run or not quiet)) as display:
        if small:
            checked = api.reproduce_small(
                paper, seeds=seeds or 1, db=db, options=options, dry_run=dry_run, display=display
            )
        elif file is not None:
            result = api.reproduce_file(file, db=db, options=options, dry_run=dry_run, display=display)
        else:
            result = api.reproduce(
                str(paper),
                table=table,
                figure=figure,
                models=split_names(models) if models else None,
                where=parse_conditions(where or ()),
                scale=scale,
                seeds=seeds or 1,
                db=db,
                options=options,
                dry_run=dry_run,
                display=display,
            )
    if dry_run:
        return
    if not small:
        with open_store(db) as store:
            print_summary(store, result.runs)
        report_sweep(result)
        return
    _print_claims(checked)
    report_sweep(checked.sweep)
    if not checked.claims_held:
        raise typer.Exit(1)


def _print_claims(result: SmallResult) -> None:
    """Print a table of the claims of all figures."""
    from rich.table import Table

    from orthobench.analysis.statistics import FEWEST_SEEDS
    from orthobench.cli.records import console

    table = Table("figure", "the paper says", "small version", "measured", box=None)
    for paper, artifact, claim_results in result.figures:
        for number, claim_result in enumerate(claim_results):
            name = "" if number else f"{paper.key} {artifact.name}"
            is_apart = claim_result.uncounted and not claim_result.is_hollow
            verdict = f"{claim_result.verdict}{'*' if is_apart else ''}"
            table.add_row(name, claim_result.claim.text, verdict, claim_result.reason)
    console().print(table)
    counts = result.claim_counts
    confirmed, checked = counts.hollow
    if apart := replace(counts, hollow=(0, 0)).apart:
        typer.echo(f"* not counted: {apart}")
    held, total = counts.confirmed + confirmed, counts.decided + counts.undecided + checked
    words = f"{held} of {total} claims held in the small versions"
    typer.echo(f"{words}; {checked} have fewer than {FEWEST_SEEDS} seeds" if checked else words)
