"""`orthobench check`: compare new runs with the baseline."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated

import typer

from orthobench.cli.filters import NO_FILTERS, Filters, filtered
from orthobench.cli.options import Json, Quiet, spelled, with_options
from orthobench.options.arguments import LARGEST_SEED
from orthobench.options.run_options import RunOptions
from orthobench.planning import MAX_SEEDS

COLUMNS = {"name", "task", "model", "preset"}
"""The names by which conditions can select the runs of a baseline, in addition to their settings."""
NOTE = (
    "Mean ± standard deviation (seeds). Lost: difference of the means, with its upper bound at 95 %; "
    "power: the probability that unchanged code passes. In parentheses: shown, not counted."
)
"""The note below the Markdown table."""


@filtered("task", "model", "preset")
@with_options(RunOptions, "device", "backend", "data_folder", "plugins")
def command(
    baseline: Annotated[Path, typer.Argument(help="The file of the baseline.")] = Path("checks/baseline.toml"),
    only: Annotated[
        list[str] | None,
        typer.Option("--only", metavar="NAME", help="Restrict to this run, such as adding/lstm; may be repeated."),
    ] = None,
    filters: Filters = NO_FILTERS,
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
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show what the planned seeds can detect, and train nothing.")
    ] = False,
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
    """Train the baseline's runs and compare the results with it.

    Conditions select runs of the baseline by name, task, model, preset or a setting, as for `orthobench ls`.

    Exit code 0: as good or better; 1: worse; 2: wrong usage; 3: could not be measured or decided.
    """
    from orthobench import api
    from orthobench.analysis.selection import possible_values
    from orthobench.cli import outcomes, records
    from orthobench.cli.session_display import TerminalDisplay, resumable
    from orthobench.errors import UsageError, counted
    from orthobench.gate.baseline import check_folder, measured_file, read_baseline, write_text
    from orthobench.gate.check import resolve_runs, with_seeds
    from orthobench.gate.plan import planned_metrics, unplanned_lines
    from orthobench.gate.update import UpdateRefusedError
    from orthobench.gate.verdict import findings_record, findings_summary
    from orthobench.plugins import Catalog
    from orthobench.settings.assignments import narrow
    from orthobench.system.kinds import refuse_other_kinds

    selected = filters.conditions()
    if update and not (reason and reason.strip()):
        raise UsageError("--update needs --reason '...': it is kept in the baseline for its readers")
    if reason and not update:
        raise UsageError("--reason belongs to --update: give both")
    for file in (junit, markdown, measured_file(baseline) if update else None):
        if file is not None:
            check_folder(file)
    for file, kind in ((junit, "XML"), (markdown, "Markdown")):
        if file is not None:
            refuse_other_kinds(file, kind)
    runs = read_baseline(baseline).select(only or ())
    if selected:
        runs = narrow(
            runs, selected, lambda run: run.settings | run.model_dump(include=COLUMNS), possible=possible_values
        )
    if dry_run:
        checked = [with_seeds(run, seeds, first_seed) for run in runs]
        unplanned = unplanned_lines(checked, resolve_runs(Catalog(options.plugins), checked))
        planned = planned_metrics(checked)
        if json:
            records.print_json([asdict(each) for each in planned])
        for each in () if json else planned:
            typer.echo(each.line)
        for line in unplanned:
            typer.echo(spelled(line), err=True)
        if not (planned or unplanned):
            typer.echo("no metric has three seeds in the baseline and now, from which a spread would follow", err=True)
        return
    has_values = measured_file(baseline).exists()
    with resumable(TerminalDisplay(quiet), hint="; the same command resumes" if db else "") as display:
        result = api.check(
            baseline,
            only=[run.name for run in runs],
            seeds=seeds,
            first_seed=first_seed,
            db=db,
            db_only=db_only,
            for_update=update,
            fail_on_speed=fail_on_speed,
            history=history,
            options=options,
            display=display,
        )
    findings = [replace(finding, reason=spelled(finding.reason)) for finding in result.findings]
    rows = [outcomes.of_finding(finding) for finding in findings]
    if update and has_values:
        typer.echo("compared with the previous baseline:", err=True)
    if json:
        records.print_json(findings_record(findings))
    elif has_values or not update:
        outcomes.print_table(rows)
        typer.echo(findings_summary(findings))
    if junit is not None:
        cases = [(f"orthobench.check.{each.run}", each.metric, row) for each, row in zip(findings, rows, strict=True)]
        write_text(junit, outcomes.junit("orthobench check", cases))
    if markdown is not None:
        write_text(markdown, outcomes.markdown(f"orthobench check: {findings_summary(findings)}", rows, NOTE))
    if not update:
        raise typer.Exit(result.exit_code)
    try:
        lines = result.update_baseline(str(reason))
    except UpdateRefusedError as error:
        typer.echo(f"{spelled(str(error))}; {baseline} is unchanged", err=True)
        raise typer.Exit(3) from None
    typer.echo(f"{measured_file(baseline)}: {counted(len(result.runs), 'run')} written", err=True)
    for line in lines:
        typer.echo(line, err=True)
