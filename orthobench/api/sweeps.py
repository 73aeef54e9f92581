"""Train many runs: the runs of a grid or a sweep file, and the trials of a search."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any

from pydantic import BeforeValidator

from orthobench.analysis.inference import seeds_of_ranking
from orthobench.analysis.summary import summary
from orthobench.analysis.variants import group, variants
from orthobench.api.runs import Task, merge
from orthobench.arrays.in_memory import Data
from orthobench.display.display import Display
from orthobench.errors import UsageError
from orthobench.options.arguments import (
    AtLeastZero,
    Count,
    Database,
    File,
    Give,
    Models,
    Parameters,
    Preset,
    Seeds,
    entries,
)
from orthobench.options.checked import checked
from orthobench.options.data_folder import use_data_folder
from orthobench.options.run_options import RunOptions, SweepOptions
from orthobench.options.seeds import TRIALS
from orthobench.options.seeds import more_seeds as seeds_after
from orthobench.planning.file import SweepFile, read_file
from orthobench.planning.grid import GridAxis, read_grid
from orthobench.planning.match import MatchedRuns, MatchedSize, target_count, with_equal_parameters
from orthobench.planning.search import Search, Tuning, TuningResult
from orthobench.planning.space import Space
from orthobench.planning.sweep_runs import SweepRun, optimizers, resolve_grid
from orthobench.plugins import Catalog
from orthobench.session.session import SweepResult, open_session
from orthobench.session.tuner import check_optuna, train_trials
from orthobench.settings import text
from orthobench.spec.resolve import default_preset
from orthobench.store import Run, open_store
from orthobench.system.location import Place

_logger = logging.getLogger(__name__)

AxisValues = Annotated[str | Sequence[Any], BeforeValidator(entries)]
Grid = Annotated[
    Mapping[str, AxisValues] | Mapping[str | tuple[str, ...], AxisValues],
    Give("a dictionary of lists by setting, such as {'learning_rate': [1e-3, 1e-4]}"),
]
"""Values by setting, `{"learning_rate": [1e-3, 1e-4]}`, or by settings bound together, `{("n", "rho"): [(170, 17)]}`.

A string uses the notation of the command line: `{"hidden_size": "128..512:x2"}`.
"""


@checked
def sweep(
    task: Task,
    models: Models,
    *,
    seeds: Seeds = 1,
    grid: Grid | None = None,
    settings: Mapping[str, Any] | None = None,
    match_parameters: Parameters | None = None,
    preset: Preset | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
    **overrides: Any,
) -> SweepResult:
    """Train the runs of a grid, each once; the same call later trains only the missing runs.

    A run that fails does not stop the others; see `SweepResult.failed`.

    Args:
        task: the name of a task, or own data, as in `run`.
        models: one model or several; layers of other programs by name or as classes, as in `run`.
        seeds: a number of seeds (0, 1, 2, ...), or the seeds.
        grid: values to combine; see `Grid`.
        settings: hyper-parameters of all runs by name, as in `run`.
        match_parameters: choose hidden sizes that give equal parameter counts. The value is a count such as 15_000 or
            "15k", or a model of the sweep, which keeps its settings. `SweepResult.sizes` contains the chosen sizes.
        jobs: number of runs at the same time, each in its own process; overrides `options.jobs`. With 0, runs train
            one by one in this process.
        dry_run: train nothing; the result contains the plan, with estimates of time and memory.
        overrides: hyper-parameters of all runs by name, such as `hidden_size=64`.

    Raises:
        UsageError: a name or value is invalid, two points are the same run, or no run could start.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options = with_jobs(options, jobs)
    axes = read_grid({_axis(names): values for names, values in (grid or {}).items()})
    given = merge(settings, overrides)
    grid_runs = _grid_runs(options, task, _listed(models), given, axes, seed_list(seeds), preset, match_parameters)
    return train(grid_runs.runs, db, options, dry_run, display, grid_runs.sizes, given)


@checked
def sweep_file(
    path: File,
    *,
    seeds: Seeds | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
) -> SweepResult:
    """Train the runs of a sweep file, each once.

    Args:
        seeds: a number of seeds, or the seeds, overriding the file.

    Raises:
        UsageError: the file is invalid, or as for `sweep`.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the runs.
    """
    options, file = with_jobs(options, jobs), read_file(path, SweepFile)
    options = replace(options, plugins=(*options.plugins, *file.plugin_files(path)))
    grid_runs = _grid_runs(
        options,
        file.task,
        file.models,
        file.overrides(),
        file.axes(),
        file.seed_list() if seeds is None else seed_list(seeds),
        file.preset,
        file.match_parameters,
    )
    return train(grid_runs.runs, db, options, dry_run, display, grid_runs.sizes, file.overrides())


@checked
def tune(
    task: Task,
    models: Models,
    grid: Grid,
    *,
    trials: Count = TRIALS,
    prune: bool = True,
    settings: Mapping[str, Any] | None = None,
    match_parameters: Parameters | None = None,
    preset: Preset | None = None,
    db: Database | None = None,
    jobs: AtLeastZero | None = None,
    options: RunOptions | None = None,
    dry_run: bool = False,
    display: Display | None = None,
    **overrides: Any,
) -> list[TuningResult]:
    """Search for good settings of each model; the results of earlier trials guide the draw of later ones.

    The same call resumes a search. All trials have seed 0.

    Args:
        task: the name of a task, or own data, as in `run`.
        grid: the space, as in `sweep`, or with ranges of numbers: `{"learning_rate": "1e-4..1e-2:log"}`.
        trials: number of trials in total.
        prune: stop trials early if they are worse than the median.
        settings: hyper-parameters of all trials by name, as in `run`.
        match_parameters: choose the hidden size of each trial for equal parameter counts, as in `sweep`.
        overrides: hyper-parameters of all trials by name, such as `hidden_size=64`.

    Raises:
        UsageError: optuna is not installed, a name or value is invalid, or no trial could start.
        RunLockedError: another process runs the same search.
        StorageError: the database cannot be written.
        Stopped: the user pressed Ctrl-C; the same call resumes the search.
    """
    options = with_jobs(options, jobs)
    check_optuna()
    catalog = Catalog(options.plugins)
    searched = list(dict.fromkeys(map(catalog.named, _listed(models))))
    space = Space([f"{_axis(names)}={_axis_text(values)}" for names, values in grid.items()])
    matched = _target(catalog, match_parameters)
    fixed = texts(merge(settings, overrides))
    target = None if matched is None else target_count(matched, searched) or matched
    name = catalog.named_task(task, fixed)
    preset = preset or default_preset(catalog, name, searched)
    tunings = [Tuning(Search(catalog, name, model, fixed, preset, space, prune, target), trials) for model in searched]
    with open_session(db, options, display, dry_run, (tuning.first_draws() for tuning in tunings)) as session:
        if not dry_run:
            return [train_trials(session, tuning) for tuning in tunings]
        results = []
        for tuning in tunings:
            result = tuning.result(session.store)
            plan = session.plan(tuning.pending(session.store), estimate=True)
            session.display.on_search(tuning, result.trials, plan)
            results.append(result)
        return results


def more_seeds(runs: Sequence[Run]) -> str:
    """Return what to give for more seeds than those of these runs, so that their ranking can be decided."""
    conditions = group(variants(runs), lambda variant: variant.run.condition)
    needed = seeds_of_ranking(max(map(len, conditions), default=1))
    return seeds_after(sorted({run.seed for run in runs}), needed)


def summarize(runs: Sequence[Run], db: Place) -> list[dict[str, Any]]:
    """Return the results of stored runs over their seeds, as rows by heading; see `analysis.summary`."""
    with open_store(db) as store:
        return summary(store, runs)


def train(
    runs: Sequence[SweepRun],
    db: Place | None,
    options: SweepOptions,
    dry_run: bool,
    display: Display | None,
    sizes: Sequence[MatchedSize] = (),
    given: Mapping[str, Any] | None = None,
) -> SweepResult:
    """Plan and train the runs of a sweep.

    Args:
        sizes: the hidden sizes that were chosen for the runs.
        given: the settings that all runs were given.

    Raises:
        OrthobenchError: as for `sweep`.
        Stopped: the user pressed Ctrl-C.
    """
    with open_session(db, options, display, dry_run, [[run.config for run in runs]]) as session:
        return session.sweep(runs, dry_run, dry_run, sizes, texts(given or {}))


def with_jobs(options: RunOptions | None, jobs: int | None) -> SweepOptions:
    """Return the options of a sweep with this number of jobs; None keeps the number in the options."""
    options = SweepOptions.of(options)
    return options if jobs is None else replace(options, jobs=jobs)


def seed_list(seeds: int | Sequence[int]) -> Sequence[int]:
    """Return the seeds; a number n stands for 0, 1, ..., n - 1.

    Raises:
        UsageError: there is no seed.
    """
    listed = range(seeds) if isinstance(seeds, int) else seeds
    if not listed:
        raise UsageError(f"seeds={seeds} should name at least one seed")
    return listed


def _grid_runs(
    options: SweepOptions,
    task: str | Data,
    models: Sequence[str | type],
    overrides: Mapping[str, Any],
    axes: Sequence[GridAxis],
    seeds: Sequence[int],
    preset: Preset | None,
    parameters: int | str | type | None,
) -> MatchedRuns:
    """Return the runs of a grid; if `parameters` is given, their hidden sizes give equal parameter counts.

    Raises:
        UsageError: a name or value is invalid, or a model cannot have that many parameters.
    """
    catalog = Catalog(options.plugins)
    task, names = catalog.named_task(task, overrides), list(map(catalog.named, models))
    preset = preset or default_preset(catalog, task, names)  # one for all models, because it changes the task, too
    runs = resolve_grid(catalog, task, names, overrides, axes, seeds, preset)
    if note := optimizers(runs):
        _logger.warning(note)
    if parameters is None:
        return MatchedRuns(runs, [])
    with use_data_folder(options.data_folder):
        return with_equal_parameters(catalog, runs, overrides, preset, _target(catalog, parameters))


def _target(catalog: Catalog, parameters: Any) -> Any:
    """Return a parameter count, or the name of the model that has it, which may be a layer."""
    is_layer = isinstance(parameters, type) or (isinstance(parameters, str) and ":" in parameters)
    return catalog.named(parameters) if is_layer else parameters


def _listed(models: Models) -> list[str | type]:
    """Return the models as a list.

    Raises:
        UsageError: there is no model, or a name is empty.
    """
    names = [models] if isinstance(models, (str, type)) else list(models)
    if not names or not all(names):
        raise UsageError("name a model, or several: models=['scornn', 'lstm']")
    return names


def texts(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the values of settings in the notation of the command line."""
    return {name: value if isinstance(value, str) else text(value) for name, value in settings.items()}


def _axis(names: str | tuple[str, ...]) -> str:
    """Return the names of an axis in the notation of the command line."""
    return names if isinstance(names, str) else f"({','.join(names)})"


def _axis_text(values: str | Sequence[Any]) -> str:
    """Return the values of an axis in the notation of the command line."""
    if isinstance(values, str):
        return values
    return ",".join(
        f"({','.join(map(text, value))})" if isinstance(value, (list, tuple)) else text(value) for value in values
    )
