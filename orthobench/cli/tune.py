"""`orthobench tune`: search for good settings of models."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orthobench.cli import completion
from orthobench.cli.options import (
    DEFAULT_DATABASE,
    DryRun,
    Given,
    MatchParameters,
    PresetName,
    Quiet,
    WrittenDatabase,
    check_names,
    split_names,
    with_options,
)
from orthobench.errors import UsageError
from orthobench.options.run_options import SweepOptions
from orthobench.system.location import Location

if TYPE_CHECKING:
    from orthobench.planning.search import TuningResult

TRIALS = 50
"""The usual number of trials."""
SEEDS = 5
"""The number of seeds in the command that trains the best trial."""


@with_options(SweepOptions)
def command(
    task: Annotated[
        str | None, typer.Argument(help="The task; `orthobench plugins` lists them.", autocompletion=completion.tasks)
    ] = None,
    models: Annotated[
        list[str] | None,
        typer.Option(
            "-m",
            "--models",
            metavar="A,B",
            help="The models, separated by commas; one search each.",
            autocompletion=completion.model_list,
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", metavar="FILE", help="A TOML file with the search; see docs/search.md."),
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=A..B",
            help="What to search: ranges KEY=64..256, KEY=1e-4..1e-2:log, or a grid's values; may be repeated.",
        ),
    ] = None,
    trials: Annotated[
        int | None,
        typer.Option("--trials", min=1, metavar="N", help=f"Number of trials in total [the file's, or {TRIALS}]."),
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option("--prune/--no-prune", help="End trials early that are worse than the median [prune]."),
    ] = None,
    set_: Given = None,
    match_parameters: MatchParameters = None,
    preset: PresetName = "paper",
    db: WrittenDatabase = DEFAULT_DATABASE,
    *,
    options: SweepOptions,
    dry_run: DryRun = False,
    quiet: Quiet = False,
) -> None:
    """Search for good settings.

    Each trial draws its settings based on the results of earlier trials. The same command resumes the search. Needs
    optuna; see docs/search.md.
    """
    from orthobench.settings.assignments import parse_assignments

    names = split_names(models) if models else []
    space: Mapping[str, Any] = parse_assignments(grid or ())
    settings: Mapping[str, Any] = parse_assignments(set_ or ())
    matched: int | str | None = match_parameters
    if file is not None:
        if task or models or grid or set_ or match_parameters or preset != "paper":
            raise UsageError(
                "--file names the search already: leave everything else but --trials and --prune out, or leave --file "
                "out"
            )
        from orthobench.planning.file import SearchFile, read_file

        content = read_file(file, SearchFile)
        task, names, space, settings = content.task, content.models, content.grid, content.overrides()
        matched, preset = content.match_parameters, content.preset
        trials = content.trials if trials is None else trials
        prune = content.prune if prune is None else prune
    if task is None or not names:
        raise UsageError("missing arguments: give a TASK and --models scornn,lstm, or --file search.toml")
    check_names(task, names, options.plugins)

    from orthobench import api
    from orthobench.cli.session_display import TerminalDisplay, print_trials, report_failures, resumable

    class TuneDisplay(TerminalDisplay):
        def on_search_end(self, result: TuningResult) -> None:
            print_trials(result, _best_command(result, options, db))

    with resumable(TuneDisplay(quiet, plan=dry_run or not quiet)) as display:
        results = api.tune(
            task,
            names,
            space,
            trials=trials or TRIALS,
            prune=prune is not False,
            settings=settings,
            match_parameters=matched,
            preset=preset,
            db=db,
            options=options,
            dry_run=dry_run,
            display=display,
        )
    if not dry_run:
        report_failures(sum(len(result.failed) for result in results), sum(len(result.trials) for result in results))


def _best_command(result: TuningResult, options: SweepOptions, db: Location) -> str:
    """Return the command that trains the best trial with more seeds; "" without a finished trial."""
    from orthobench.errors import shell_command
    from orthobench.store.sqlite import default_database

    if result.best is None:
        return ""
    search = result.tuning.search
    words = ["sweep", search.catalog.task_word(search.task), "--models", search.catalog.word(search.model)]
    settings = search.overrides | result.best.settings
    words += [word for name, value in settings.items() for word in ("-s", f"{name}={value}")]
    words += ["--preset", search.preset] if search.preset != "paper" else []
    words += [word for plugin in options.plugins for word in ("--plugin", str(plugin))]
    words += [] if options.data_folder is None else ["--data-dir", str(options.data_folder)]
    words += ["--db", str(db)] if db != default_database(writes=True) else []
    return shell_command(*words, "--seeds", SEEDS)
