"""`orthobench check`: compare new runs with the baseline."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from orthobench import api
from orthobench.cli import outcomes
from orthobench.cli.filters import filtered
from orthobench.cli.options import Json, Quiet, spelled, with_options
from orthobench.cli.sessions import displayed
from orthobench.display import print_json
from orthobench.errors import UpdateRefusedError, UsageError, counted
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.run_options import RunOptions
from orthobench.options.seeds import MAX_SEEDS


@filtered("task", "model", "preset")
@with_options(RunOptions, "device", "backend", "data_folder", "plugins")
def command(
    baseline: Annotated[Path, typer.Argument(help="The file of the baseline.")] = Path("checks/baseline.toml"),
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Restrict to this run, such as adding/lstm; may be repeated."),
    ] = None,
    where: Sequence[str] = (),
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="Number of seeds, in place of the baseline's.")
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option(
            "--first-seed",
            min=0,
            max=LARGEST_SEED - MAX_SEEDS,
            help="First seed, in place of the baseline's; the number of seeds stays.",
        ),
    ] = None,
    db: Annotated[
        str | None,
        typer.Option("--db", help="Keep runs in this database and reuse its runs; default: a temporary one."),
    ] = None,
    db_only: Annotated[bool, typer.Option("--db-only", help="Train nothing; use the runs of the database.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Write the measured values into the baseline.")] = False,
    reason: Annotated[
        str | None, typer.Option("--reason", help="Why the baseline changes; the baseline keeps it (with --update).")
    ] = None,
    fail_on_speed: Annotated[
        bool, typer.Option("--fail-on-speed", help="Also fail if training steps are slower.")
    ] = False,
    history: Annotated[
        str | None,
        typer.Option(
            "--history",
            metavar="DB",
            help="Also store the verdicts in this database; its report plots them over time.",
        ),
    ] = None,
    junit: Annotated[
        Path | None, typer.Option("--junit", metavar="FILE", help="Also write the result as JUnit XML.")
    ] = None,
    markdown: Annotated[
        Path | None, typer.Option("--markdown", metavar="FILE", help="Also write the result as a Markdown table.")
    ] = None,
    *,
    options: RunOptions,
    quiet: Quiet = False,
    json: Json = False,
) -> None:
    """Train the baseline's runs and compare them with it.

    Conditions select runs of the baseline by name, task, model, preset or a setting, as for `orthobench ls`.

    Exit code 0: as good or better; 1: worse; 2: wrong usage; 3: could not be measured or decided.
    """
    if update and not (reason and reason.strip()):
        raise UsageError("--update needs --reason '...': it is kept in the baseline for its readers")
    if reason and not update:
        raise UsageError("--reason belongs to --update: give both")
    with displayed(quiet, hint="; the same command resumes" if db else "") as display:
        result = api.check(
            baseline,
            only=only or (),
            where=where,
            seeds=seeds,
            first_seed=first_seed,
            db=db,
            db_only=db_only,
            for_update=update,
            fail_on_speed=fail_on_speed,
            history=history,
            junit=junit,
            markdown=markdown,
            options=options,
            display=display,
        )
    result = replace(result, findings=[replace(each, reason=spelled(each.reason)) for each in result.findings])
    if update and result.had_values:
        typer.echo("compared with the previous baseline:", err=True)
    if json:
        print_json(result.record())
    elif result.had_values or not update:
        outcomes.print_outcomes([outcomes.of_finding(finding) for finding in result.findings])
        typer.echo(result.summary)
    result.write_files()
    if not update:
        raise typer.Exit(result.exit_code)
    try:
        lines = result.update_baseline(str(reason))
    except UpdateRefusedError as error:
        typer.echo(f"{spelled(str(error))}; {baseline} is unchanged", err=True)
        raise typer.Exit(3) from None
    typer.echo(f"{result.measured}: {counted(len(result.runs), 'run')} written", err=True)
    for line in lines:
        typer.echo(line, err=True)
