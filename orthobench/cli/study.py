"""`orthobench study`: run a paper's study of what happens inside models, and draw its figures."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli.options import DEFAULT_DATABASE, DryRun, Json, PresetName, Quiet, WrittenDatabase, with_options
from orthobench.cli.records import TEXT, print_table
from orthobench.cli.sessions import displayed, report_sweep
from orthobench.display import print_json
from orthobench.errors import UsageError
from orthobench.options.run_options import WHERE, SweepOptions
from orthobench.options.seeds import MAX_SEEDS


@with_options(SweepOptions)
def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The study; --list names them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="List the studies.")] = False,
    seeds: Annotated[
        int,
        typer.Option(
            "--seeds",
            min=1,
            max=MAX_SEEDS,
            help="Number of seeds: 0, 1, 2, ...; a study may limit it for some of its tasks.",
        ),
    ] = 1,
    preset: PresetName = None,
    out: Annotated[
        Path | None,
        typer.Option("-o", "--out", metavar="FILE", help="The page [reports/study-NAME.html].", rich_help_panel=WHERE),
    ] = None,
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Run a paper's study and draw its figures.

    Its runs are trained as by `sweep`, each once. The report shows the figures as well. With --json: the page, and the
    runs in the form of `orthobench ls --json` or, with --dry-run, as planned.
    """
    if list_:
        _print_list(api.descriptions.studies(), json)
        return
    if name is None:
        raise UsageError("missing argument: name a study, or list them with --list")
    with displayed(quiet, plan=not json and (dry_run or not quiet)) as display:
        result = api.study(
            name,
            preset=preset or "paper",
            seeds=seeds,
            out=out,
            db=db,
            options=options,
            dry_run=dry_run,
            display=display,
        )
    if json:
        runs = [] if result.sweep is None else api.stored.list_sweep(result.sweep, db, dry_run)
        print_json({"study": name, "page": None if result.page is None else str(result.page), "runs": runs})
    elif result.page is not None:
        typer.echo(result.page)
    elif result.sweep is None:
        typer.echo(f"{name} trains no runs: it {'measures' if result.study.benchmark else 'computes'}")
    if result.sweep is not None and not dry_run:
        report_sweep(result.sweep)


def _print_list(studies: Sequence[dict[str, str]], json: bool) -> None:
    if json:
        print_json(studies)
    else:
        rows, folds = [tuple(study.values()) for study in studies], {"title": TEXT, "paper": TEXT}
        print_table(("study", "title", "paper", "figure"), rows, optional=["figure", "paper"], folds=folds)
