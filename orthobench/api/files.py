"""Train the run or the search that a TOML file describes, as the command line does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from orthobench.api.runs import run
from orthobench.api.sweeps import tune
from orthobench.display.display import Display
from orthobench.options.run_options import RunOptions, SweepOptions
from orthobench.options.seeds import TRIALS
from orthobench.planning.file import RunFile, SearchFile, read_file
from orthobench.planning.search import TuningResult
from orthobench.store import Run
from orthobench.system.location import Place


def run_file(
    path: Path,
    *,
    seed: int | None = None,
    epochs: int | None = None,
    db: Place | None = None,
    force: bool = False,
    options: RunOptions | None = None,
    display: Display | None = None,
) -> Run:
    """Train the run of a TOML file, and return its record.

    Args:
        seed: the seed, overriding the file.
        epochs: train to this epoch, from the training state that a shorter run has kept, if there is one.

    Raises:
        OrthobenchError: the file is invalid, or as for `run`.
        Stopped: the user pressed Ctrl-C; the same call resumes the run.
    """
    options, file = options or RunOptions(), read_file(path, RunFile)
    return run(
        file.task,
        file.model,
        preset=file.preset,
        seed=file.seed if seed is None else seed,
        db=db,
        force=force,
        extend=epochs is not None,
        settings=file.overrides() if epochs is None else {**file.overrides(), "epochs": epochs},
        options=replace(options, plugins=(*options.plugins, *file.plugin_files(path))),
        display=display,
    )


def tune_file(
    path: Path,
    *,
    trials: int | None = None,
    prune: bool | None = None,
    db: Place | None = None,
    options: SweepOptions,
    dry_run: bool = False,
    display: Display | None = None,
) -> list[TuningResult]:
    """Search for good settings of the models in a search file.

    Args:
        trials: number of trials in total, overriding the file.
        prune: whether to stop bad trials early, overriding the file.

    Raises:
        OrthobenchError: the file is invalid, or as for `tune`.
        Stopped: the user pressed Ctrl-C; the same call resumes the search.
    """
    file = read_file(path, SearchFile)
    return tune(
        file.task,
        file.models,
        file.grid,
        trials=(file.trials or TRIALS) if trials is None else trials,
        prune=file.prune is not False if prune is None else prune,
        settings=file.overrides(),
        match_parameters=file.match_parameters,
        preset=file.preset,
        db=db,
        options=replace(options, plugins=(*options.plugins, *file.plugin_files(path))),
        dry_run=dry_run,
        display=display,
    )
