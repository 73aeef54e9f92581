"""`orthobench reproduce`: train the runs of a paper, or small versions of its figures with their claims."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Quiet,
    WrittenDatabase,
    models_option,
    split_names,
    with_options,
)
from orthobench.cli.records import TEXT, print_summary, print_table
from orthobench.cli.sessions import displayed, report_sweep
from orthobench.errors import UsageError
from orthobench.options.run_options import SweepOptions
from orthobench.options.seeds import MAX_SEEDS


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
    models: Annotated[list[str] | None, models_option("Restrict to these models.")] = None,
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
    if paper is not None:
        api.descriptions.find_paper(paper)  # before torch is loaded, which takes seconds
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
    with displayed(quiet, plan=dry_run or not quiet) as display:
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
                where=api.papers.parse_conditions(where or ()),
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
        print_summary(api.sweeps.summarize(result.runs, db))
        report_sweep(result)
        return
    _print_claims(checked)
    report_sweep(checked.sweep)
    if not checked.claims_held:
        raise typer.Exit(1)


def _print_claims(result: api.SmallResult) -> None:
    """Print a table of the claims of all figures."""
    rows = []
    for paper, artifact, claim_results in result.figures:
        for number, claim_result in enumerate(claim_results):
            name = "" if number else f"{paper.key} {artifact.name}"
            is_apart = claim_result.uncounted and not claim_result.is_hollow
            verdict = f"{claim_result.verdict}{'*' if is_apart else ''}"
            rows.append((name, claim_result.claim.text, verdict, claim_result.reason))
    headings = ("figure", "the paper says", "small version", "measured")
    print_table(headings, rows, optional=["measured"], folds=dict.fromkeys(headings, TEXT))
    counts = result.claim_counts
    confirmed, checked = counts.hollow
    if apart := replace(counts, hollow=(0, 0)).apart:
        typer.echo(f"* not counted: {apart}")
    held, total = counts.confirmed + confirmed, counts.decided + counts.undecided + checked
    words = f"{held} of {total} claims held in the small versions"
    typer.echo(
        "; ".join(filter(None, (words, f"{few} with fewer than three seeds" if (few := counts.hollow[1]) else "")))
    )
