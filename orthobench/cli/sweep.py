"""`orthobench sweep`: the runs of a grid, each once."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    CheckpointEvery,
    CheckpointPlace,
    Database,
    DataFolder,
    Device,
    Given,
    GpuShare,
    Jobs,
    OnDivergence,
    PluginFiles,
    PresetName,
    Tags,
    checkpoint_root,
)
from orthobench.sweep import MAX_SEEDS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from orthobench.analysis.variants import Variant
    from orthobench.execution.tuner import Tuning
    from orthobench.plugins import Catalog
    from orthobench.spec import Preset, RunConfig


def _print_schema(wanted: bool) -> None:
    if wanted:
        from orthobench.sweep.file import schema

        typer.echo(schema())
        raise typer.Exit


def command(
    task: Annotated[str | None, typer.Argument(help="The task; `orthobench plugins` lists them.")] = None,
    models: Annotated[
        str | None,
        typer.Option("--models", metavar="A,B", help="The models, separated by commas; of a paper, only these."),
    ] = None,
    paper: Annotated[
        str | None, typer.Option("--paper", metavar="KEY", help="Instead: what a paper ran, such as helfrich2018.")
    ] = None,
    table: Annotated[str | None, typer.Option("--table", metavar="N", help="Of the paper, only this table.")] = None,
    figure: Annotated[str | None, typer.Option("--figure", metavar="N", help="Of the paper, only this figure.")] = None,
    only: Annotated[
        list[str] | None,
        typer.Option(
            "--where", metavar="KEY=VALUE", help="Of the paper, only what has this setting, or task; may be repeated."
        ),
    ] = None,
    scale: Annotated[
        float,
        typer.Option("--scale", metavar="F", help="Of the paper's epochs, lengths and data this share: other runs."),
    ] = 1.0,
    file: Annotated[
        Path | None, typer.Option("--file", metavar="FILE", help="Instead: what a TOML file says; docs/sweep.md.")
    ] = None,
    grid: Annotated[
        list[str] | None,
        typer.Option(
            "--grid",
            metavar="KEY=V1,V2",
            help="Values to combine, also KEY=128..512:x2, 1..9:+2, '(K1,K2)=(1,2),(3,4)'; may be repeated.",
        ),
    ] = None,
    set_: Given = None,
    seeds: Annotated[
        int | None,
        typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds: 0, 1, 2, ...; else the file's, or 1."),
    ] = None,
    preset: PresetName = "paper",
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    data_dir: DataFolder = None,
    plugin: PluginFiles = None,
    tag: Tags = None,
    checkpoints: CheckpointPlace = None,
    checkpoint_every: CheckpointEvery = 30.0,
    search: Annotated[
        Literal["optuna"] | None,
        typer.Option("--search", help="Instead of every point of the grid: points drawn, from ranges a..b[:log] too."),
    ] = None,
    trials: Annotated[
        int | None, typer.Option("--trials", min=1, metavar="N", help="Of a search: points in all; 50 by default.")
    ] = None,
    prune: Annotated[
        bool | None,
        typer.Option("--prune/--no-prune", help="Of a search: cut runs short that are worse than the median."),
    ] = None,
    executor: Annotated[
        str,
        typer.Option(
            "--executor",
            metavar="local|ray|ray://HOST:PORT",
            help="Where: in processes here, on the Ray cluster that this machine is part of, or on another one.",
        ),
    ] = "local",
    threads: Annotated[
        int | None, typer.Option("--threads", min=1, help="With Ray: threads, and CPUs, of each run; else one.")
    ] = None,
    jobs: Jobs = None,
    gpu_share: GpuShare = 1,
    on_divergence: OnDivergence = "stop",
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Train what fits into 8h, 90m, 1h30m, by priority.")
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show the runs and what they will take, and start none.")
    ] = False,
    no_probe: Annotated[
        bool, typer.Option("--no-probe", help="Estimate from the database's runs alone; try no steps.")
    ] = False,
    schema: Annotated[
        bool, typer.Option("--schema", callback=_print_schema, is_eager=True, help="Print the files' JSON schema.")
    ] = False,
) -> None:
    """Train the runs of a grid, or of a paper's table or figure, each once; again, what is missing."""
    import torch

    from orthobench.analysis.variants import variants
    from orthobench.errors import UsageError
    from orthobench.execution import planner as planning
    from orthobench.execution import session as training
    from orthobench.execution.budget import Budget, parse_duration
    from orthobench.execution.tuner import check_optuna, tune
    from orthobench.plugins import Catalog
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.sweep.plan import plan
    from orthobench.training.lifecycle import check_backend, pick_device

    seconds = None if budget is None else parse_duration(budget)
    catalog = Catalog(plugin or ())
    tunings: list[Tuning] = []
    runs: Sequence[tuple[RunConfig, dict[str, str]]] = []
    if search is not None:
        check_optuna()
    if search is None and (trials is not None or prune is not None):
        raise UsageError("--trials and --prune are of a search: add --search optuna")
    if paper is None and (table or figure or only or scale != 1):
        raise UsageError("--table, --figure, --where and --scale are of a paper: add --paper helfrich2018")
    mine = task or grid or set_ or preset != "paper"
    if search is not None:
        if paper or file or seeds:
            raise UsageError("a search draws settings for one seed: leave --paper, --file and --seeds out")
        tunings = _tunings(catalog, task, models, grid or (), set_ or (), preset, trials or 50, prune is not False)
    elif file is not None:
        if mine or models or paper:
            raise UsageError("--file says what to run: leave everything else but --seeds out, or leave --file out")
        runs = _file(catalog, file, seeds)
    elif paper is not None:
        if mine:
            raise UsageError("--paper says task and settings: leave yours out, or leave --paper out")
        runs = _paper(catalog, paper, table, figure, models, only or (), range(seeds or 1), scale)
    else:
        runs = _grid(catalog, task, models, grid or (), set_ or (), range(seeds or 1), preset)
    place = checkpoint_root(db, checkpoints)
    cluster = None
    if executor == "local" and threads is not None:
        raise UsageError("--threads is for --executor ray: here the runs share the cores, leave it out")
    if executor != "local" and not dry_run:
        cluster = training.cluster(executor, db, checkpoints, device, threads or 1, gpu_share, jobs, data_dir)
    where = pick_device(device) if cluster is None else torch.device(cluster.device)
    if cluster is None:
        check_backend(backend, where)
    at_once = training.at_once(where, jobs, gpu_share) if cluster is None else cluster.room()
    planner = planning.Planner(where, backend, plugin or (), at_once, not no_probe)
    if dry_run:
        with training.existing(db) or nullcontext() as store:
            for tuning in tunings:
                tuning.tell_plan(store)
                planner.tell(plan(tuning.to_come(store), store, place, on_divergence), store)
            if not tunings:
                planner.choose(plan(runs, store, place, on_divergence), store, seconds)
        return
    check_writable(db)
    if tunings:
        with cluster or nullcontext(), open_store(db, create=True) as store, training.stop_on_signals() as stop:
            session = training.Session(
                store, db, where, backend, checkpoint_every, stop, plugin or (), on_divergence, checkpoints, tag or ()
            )
            limit = None if seconds is None else Budget(seconds)
            tune(tunings, session, at_once, jobs, gpu_share, limit, cluster)
        return
    with cluster or nullcontext(), open_store(db, create=True) as store:
        store.tag([config.spec.key for config, _ in runs], tag or ())
        planned = plan(runs, store, place, on_divergence)
        if seconds is None:
            training.print_plan(planned)
        else:
            planned = planner.choose(planned, store, seconds)
        with training.stop_on_signals() as stop:
            session = training.Session(
                store, db, where, backend, checkpoint_every, stop, plugin or (), on_divergence, checkpoints, tag or ()
            )
            limit = None if seconds is None else Budget(seconds)
            failed = session.train_missing(planned, jobs, gpu_share, limit, cluster)
        _print_summary(variants(store.runs(keys=[config.spec.key for config, _ in runs])))
    training.report_failures(failed, len(runs))


def _file(catalog: Catalog, path: Path, seeds: int | None) -> Sequence[tuple[RunConfig, dict[str, str]]]:
    """The runs of a file."""
    from orthobench.sweep.file import read_file
    from orthobench.sweep.plan import resolve_grid

    wanted = read_file(path)
    numbers = range(seeds or wanted.seeds)
    return resolve_grid(catalog, wanted.task, wanted.models, wanted.overrides(), wanted.axes(), numbers, wanted.preset)


def _grid(
    catalog: Catalog,
    task: str | None,
    models: str | None,
    grid: Sequence[str],
    given: Sequence[str],
    seeds: range,
    preset: Preset,
) -> Sequence[tuple[RunConfig, dict[str, str]]]:
    """The runs of a grid, from the command line's texts."""
    from orthobench.settings import parse_assignments
    from orthobench.sweep.grid import parse_grid
    from orthobench.sweep.plan import resolve_grid

    names = _names(task, models)
    return resolve_grid(catalog, task or "", names, parse_assignments(given), parse_grid(grid), seeds, preset)


def _tunings(
    catalog: Catalog,
    task: str | None,
    models: str | None,
    grid: Sequence[str],
    given: Sequence[str],
    preset: Preset,
    trials: int,
    prune: bool,
) -> list[Tuning]:
    """A search for each model, from the command line's texts."""
    from orthobench.execution.tuner import Tuning
    from orthobench.settings import parse_assignments
    from orthobench.sweep.search import Search
    from orthobench.sweep.space import Space

    names, space, settings = _names(task, models), Space(grid), parse_assignments(given)
    searches = [Search(catalog, task or "", model, settings, preset, space, prune) for model in dict.fromkeys(names)]
    return [Tuning(search, trials) for search in searches]


def _names(task: str | None, models: str | None) -> list[str]:
    """The models' names."""
    from orthobench.errors import UsageError

    if task is None or models is None:
        raise UsageError("say what to run: a task and --models scornn,lstm, or --paper helfrich2018")
    names = [name.strip() for name in models.split(",")]
    if not all(names):
        raise UsageError(f"--models '{models}' has an empty name: write --models scornn,lstm")
    return names


def _paper(
    catalog: Catalog,
    key: str,
    table: str | None,
    figure: str | None,
    models: str | None,
    only: Sequence[str],
    seeds: range,
    scale: float,
) -> Sequence[tuple[RunConfig, dict[str, str]]]:
    """The runs of a paper, or of its table or figure, or of some models and settings in it."""
    from orthobench.errors import UsageError, unknown
    from orthobench.papers import find_paper
    from orthobench.settings import parse_assignments
    from orthobench.sweep.paper import resolve_experiments, select_experiments, with_settings

    if table and figure:
        raise UsageError("name a table or a figure, one at a time")
    kind, name = ("table", table) if table else ("figure", figure)
    chosen = select_experiments(find_paper(key), kind, name)
    if models is not None:
        known = {experiment.model for experiment in chosen}
        names = [model.strip() for model in models.split(",")]
        for model in names:
            if model not in known:
                raise unknown("model of this paper", model, known)
        chosen = [experiment for experiment in chosen if experiment.model in names]
    return resolve_experiments(catalog, with_settings(chosen, parse_assignments(only)), seeds, scale)


def _print_summary(rows: list[Variant]) -> None:
    from rich.table import Table

    from orthobench.cli.records import cell, console

    headings = ("model", "seeds", "metric", "final (mean ± 95 %)", "best", "diverged", "parameters", "s/epoch")
    table = Table(*headings, box=None)
    for row in rows:
        table.add_row(
            row.label,
            f"{len(row.finished)} of {len(row.runs)}",
            row.run.metric,
            cell(row.final and str(row.final)),
            cell(row.best and str(row.best)),
            str(row.diverged),
            str(row.run.parameter_count),
            cell(row.seconds_per_epoch and row.seconds_per_epoch.mean),
        )
    console().print(table)
