"""`orthobench study`: a paper's study of what happens inside, from its runs to its figure."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orthobench.cli.options import (
    DEFAULT_DATABASE,
    Backend,
    CheckpointEvery,
    Database,
    Device,
    GpuShare,
    Jobs,
    Json,
    PluginFiles,
    PresetName,
    Tags,
    checkpoint_root,
)
from orthobench.sweep import MAX_SEEDS

if TYPE_CHECKING:
    import torch

    from orthobench.papers import Study
    from orthobench.plugins import Catalog
    from orthobench.spec import RunConfig
    from orthobench.store import Store


def command(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]", help="The study; --list names them.")] = None,
    list_: Annotated[bool, typer.Option("--list", help="Name the studies instead.")] = False,
    seeds: Annotated[int, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds: 0, 1, 2, ...")] = 1,
    preset: PresetName = "paper",
    out: Annotated[
        Path | None, typer.Option("-o", "--out", metavar="FILE", help="The page; by default reports/study-NAME.html.")
    ] = None,
    device: Device = "auto",
    backend: Backend = "auto",
    db: Database = DEFAULT_DATABASE,
    plugin: PluginFiles = None,
    tag: Tags = None,
    checkpoint_every: CheckpointEvery = 30.0,
    jobs: Jobs = None,
    gpu_share: GpuShare = 1,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show the runs and start none.")] = False,
    json: Json = False,
) -> None:
    """Carry out a paper's study and draw its figure.

    Its runs are trained as by `sweep`, each once; the report shows the figure as well.
    """
    from orthobench.errors import UsageError
    from orthobench.papers import find_study, studies

    if list_:
        _print_list(studies(), json)
        return
    if name is None:
        raise UsageError("name a study, or ask for --list")
    study = find_study(name)

    from orthobench.analysis.dynamics import COMPUTATIONS
    from orthobench.execution import session as training
    from orthobench.plugins import Catalog
    from orthobench.report import write_study
    from orthobench.store import open_store
    from orthobench.store.open import check_writable
    from orthobench.sweep.plan import plan
    from orthobench.training.lifecycle import check_backend, pick_device

    catalog = Catalog(plugin or ())
    runs, figures = _resolve(study, catalog, preset, seeds)
    where = pick_device(device)
    check_backend(backend, where)
    checkpoints = checkpoint_root(db)
    if dry_run:
        if not runs:
            typer.echo(f"{name} trains no runs: it {'measures' if study.benchmark else 'computes'}")
            return
        with training.existing(db) or nullcontext() as store:
            training.print_plan(plan(runs, store, checkpoints))
        return
    check_writable(db)
    failed = 0
    with open_store(db, create=True) as store:
        if study.benchmark:
            _measure(study, catalog, store, where, preset == "quick")
        elif study.computation:
            _keep(study, store, where, {"preset": "paper", **COMPUTATIONS[study.computation]()})
        else:
            _keep(study, store, where, {"preset": preset, "figures": figures})
            store.tag([config.spec.key for config, _ in runs], tag or ())
            planned = plan(runs, store, checkpoints)
            training.print_plan(planned)
            with training.stop_on_signals() as stop:
                session = training.Session(
                    store, db, where, backend, checkpoint_every, stop, plugin or (), tags=tag or ()
                )
                failed = session.train_missing(planned, jobs, gpu_share)
        page = write_study(store, out or Path("reports") / f"study-{study.name}.html", study)
    typer.echo(page)
    training.report_failures(failed, len(runs))


def _resolve(
    study: Study, catalog: Catalog, preset: Any, seeds: int
) -> tuple[list[tuple[RunConfig, dict[str, str]]], dict[str, list[str]]]:
    """The study's runs, each once, seed by seed; and by figure, the keys of those that it shows."""
    from orthobench.settings import text
    from orthobench.spec import resolve

    runs: dict[str, tuple[RunConfig, dict[str, str]]] = {}
    figures: dict[str, list[str]] = {}
    wanted = study.runs(preset)
    made = [resolve(catalog, run.task, run.model, run.settings, preset) for run in wanted]
    for seed in range(seeds):
        for run, config in zip(wanted, made, strict=True):
            one = config.with_seed(seed)
            chosen = {name: text(value) for name, value in run.settings.items()}
            runs.setdefault(one.spec.key, (one, chosen))
            figures.setdefault(run.figure, []).append(one.spec.key)
    return list(runs.values()), figures


def _keep(study: Study, store: Store, device: torch.device, results: dict[str, Any]) -> None:
    """Enter what the study consists of, unless the newest record of it says the same."""
    from orthobench import environment

    before = store.benchmarks(study.record)
    if not before or before[-1].results != results:
        facts = environment.describe(device)
        store.add_benchmark(study.record, results, environment.digest(facts), facts)


def _measure(study: Study, catalog: Catalog, store: Store, device: torch.device, quick: bool) -> None:
    """As `bench --models`, unless that was done in these very surroundings."""
    from orthobench import environment
    from orthobench.bench.models import measure_models
    from orthobench.bench.suite import Plan

    facts = environment.describe(device)
    digest = environment.digest(facts)
    for one in store.benchmarks(study.record):
        if one.environment.digest == digest and one.results["quick"] == quick:
            return
    plan = Plan(device, 1 if quick else 5, quick, tell=lambda message: typer.echo(message, err=True))
    models = {entry.name: entry.load() for entry in catalog if entry.kind == "model"}
    store.add_benchmark(study.record, measure_models(models, plan), digest, facts)


def _print_list(known: tuple[Study, ...], json: bool) -> None:
    from rich.table import Table

    from orthobench.cli import records

    if json:
        records.print_json([{"name": s.name, "title": s.title, "paper": s.source, "figure": s.figure} for s in known])
        return
    table = Table("study", "what it is", "paper", "figure", box=None)
    for study in known:
        table.add_row(study.name, study.title, study.source, study.figure)
    records.console().print(table)
