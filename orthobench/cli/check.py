"""`orthobench check`: whether the numbers are still as good as the baseline's."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Annotated

import typer

from orthobench.cli.options import DEFAULT_DATABASE, LARGEST_SEED, Backend, Device, Json, PluginFiles
from orthobench.sweep import MAX_SEEDS

if TYPE_CHECKING:
    import torch

    from orthobench.check.baseline import CheckedRun
    from orthobench.execution.job import Job
    from orthobench.execution.session import Session
    from orthobench.plugins import Catalog
    from orthobench.spec import RunConfig
    from orthobench.store import Run, Store
    from orthobench.sweep.plan import PlannedRun
    from orthobench.training.lifecycle import BackendName


def command(
    baseline: Annotated[Path, typer.Argument(help="The baseline.")] = Path("checks/baseline.toml"),
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="NAME", help="Only this run, such as adding/lstm; repeatable.")
    ] = None,
    seeds: Annotated[
        int | None, typer.Option("--seeds", min=1, max=MAX_SEEDS, help="How many seeds, not those it names.")
    ] = None,
    first_seed: Annotated[
        int | None,
        typer.Option("--first-seed", min=0, max=LARGEST_SEED - MAX_SEEDS, help="As many, from this one on."),
    ] = None,
    db: Annotated[
        str | None, typer.Option("--db", help="Keep the runs in this database, and take those in it; else a new one.")
    ] = None,
    db_only: Annotated[bool, typer.Option("--db-only", help="Train nothing: take what the database has.")] = False,
    update: Annotated[bool, typer.Option("--update", help="Write what comes out into the baseline.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why the baseline changes; kept in it.")] = None,
    fail_on_speed: Annotated[bool, typer.Option("--fail-on-speed", help="Fail on slower steps, too.")] = False,
    junit: Annotated[Path | None, typer.Option("--junit", metavar="FILE", help="Write JUnit XML.")] = None,
    markdown: Annotated[Path | None, typer.Option("--markdown", metavar="FILE", help="Write a Markdown table.")] = None,
    device: Device = "auto",
    backend: Backend = "auto",
    plugin: PluginFiles = None,
    json: Json = False,
) -> None:
    """Compare runs of today with the baseline's numbers.

    Exit code 0: as good or better; 1: worse; 2: wrong usage; 3: could not be measured or decided.
    """
    from orthobench.errors import UsageError

    if update and not (reason and reason.strip()):
        raise UsageError("--update needs --reason '...': it is kept in the baseline for its readers")
    if reason and not update:
        raise UsageError("--reason belongs to --update: give both")

    from orthobench.check.baseline import (
        check_directions,
        check_folder,
        condition,
        measured_file,
        read_baseline,
        write_measured,
        write_text,
    )

    content = read_baseline(baseline)
    for file in (junit, markdown, measured_file(baseline) if update else None):
        if file is not None:
            check_folder(file)
    wanted = content.select(only or ())
    from orthobench import environment
    from orthobench.check import render, verdict
    from orthobench.check.results import collect_results
    from orthobench.check.update import MissingValueError, check_seeds, provenance, vacuous_metrics, with_new_values
    from orthobench.cli import records
    from orthobench.plugins import Catalog
    from orthobench.training.lifecycle import check_backend, pick_device
    from orthobench.training.loop import Interrupted

    catalog = Catalog(plugin or ())
    checked = [_with_seeds(run, seeds, first_seed) for run in wanted]
    config = {run.name: _resolve(catalog, run) for run in checked}
    for run in checked:
        check_directions(run, config[run.name][0])
    conditions = {name: condition(runs[0].spec) for name, runs in config.items()}
    refused = {run.name: why for run in checked if (why := verdict.refusal(run, conditions[run.name]))}
    if update:
        check_seeds(checked)
    where = pick_device(device)
    check_backend(backend, where)
    facts = environment.describe(where)
    with _database(db, db_only) as (store, place):
        if not db_only:
            trained = [one for name, runs in config.items() if update or name not in refused for one in runs]
            try:
                _train(trained, store, place, where, backend, plugin or ())
            except Interrupted:
                typer.echo("stopped" + ("; the same command goes on from here" if db else ""), err=True)
                raise typer.Exit(130) from None
        # What is recorded is recorded as this code's, so for an update it has to be. In a new database all is, and what
        # is edited while it fills is not what trains.
        here = None if (db_only and not update) or (db is None and not db_only) else facts
        results = {name: collect_results(store, runs, here) for name, runs in config.items()}

    findings = []
    for run in checked:
        if run.name in refused:
            findings.append(refused[run.name])
        else:
            findings += verdict.judge(run, content.origin(run), results[run.name], fail_on_speed)
    if update:
        typer.echo("beside the baseline as it was:", err=True)
    if json:
        records.print_json(render.as_json(findings))
    else:
        records.console().print(render.table(findings))
        typer.echo(render.summary(findings))
    for file, text in ((junit, render.junit), (markdown, render.markdown)):
        if file is not None:
            write_text(file, text(findings))
    if not update:
        raise typer.Exit(verdict.exit_code(findings))

    try:
        anew = [with_new_values(run, config[run.name][0], results[run.name]) for run in wanted]
    except MissingValueError as error:
        typer.echo(f"{error}; {baseline} is as it was", err=True)
        raise typer.Exit(3) from None
    write_measured(baseline, anew, provenance(baseline, str(reason), facts, [run.name for run in anew]))
    typer.echo(f"{measured_file(baseline)}: {len(anew)} run{'s' * (len(anew) != 1)} written", err=True)
    for run in anew:
        for warning in vacuous_metrics(run, config[run.name][0]):
            typer.echo(f"{run.name}: {warning}", err=True)


def _train(
    runs: list[RunConfig],
    store: Store,
    place: str,
    where: torch.device,
    backend: BackendName,
    plugins: Sequence[Path],
) -> None:
    """Train what is missing of these runs, each with the calibration beside it.

    Raises:
        UsageError: one cannot be started.
        Interrupted: the user asked to stop.
    """
    from orthobench.check.results import calibrate
    from orthobench.execution import session as training
    from orthobench.sweep.plan import plan

    with training.stop_on_signals() as stop:
        session = training.Session(store, place, where, backend, 30.0, stop, plugins)
        planned = plan([(one, {}) for one in runs], store, session.checkpoints)
        calibrate(store, where, _trained(session, session.jobs(planned, _label)))


def _trained(session: Session, jobs: list[Job]) -> Iterator[Run]:
    """Runs as they are made, one by one as they are asked for; one that fails is told and ends nothing."""
    from orthobench.errors import UsageError
    from orthobench.execution.job import Ending
    from orthobench.training.loop import Interrupted

    done = 0
    for outcome in session.in_this_process().run(jobs):
        if outcome.ending == Ending.INTERRUPTED:
            raise Interrupted
        if outcome.ending in (Ending.REFUSED, Ending.BUSY):
            raise UsageError(outcome.cause)
        if outcome.ending == Ending.FAILED:
            typer.echo(f"{outcome.job.label} failed: {outcome.cause}", err=True)
        elif run := session.store.find(outcome.job.spec.key):
            yield run
        done += 1
    if done < len(jobs):
        raise Interrupted


def _with_seeds(run: CheckedRun, count: int | None, first: int | None) -> CheckedRun:
    """The run with the seeds that were asked for in place of its own."""
    if count is None and first is None:
        return run
    start = run.seeds[0] if first is None else first
    return run.model_copy(update={"seeds": tuple(range(start, start + (count or len(run.seeds))))})


def _resolve(catalog: Catalog, run: CheckedRun) -> list[RunConfig]:
    """The run's seeds, ready to be trained."""
    from orthobench.errors import UsageError
    from orthobench.spec import resolve

    try:
        first = resolve(catalog, run.task, run.model, run.settings, run.preset, run.seeds[0])
    except UsageError as error:
        raise UsageError(f"run {run.name}: {error}") from error
    return [first.with_seed(seed) for seed in run.seeds]


def _label(one: PlannedRun) -> str:
    return f"{one.config.spec.task} {one.config.spec.model}"


@contextmanager
def _database(db: str | None, db_only: bool) -> Iterator[tuple[Store, str]]:
    """The database and where it is: one of its own unless one is named, so that no earlier code's run counts."""
    from orthobench.store import open_store
    from orthobench.store.open import check_writable

    if db is None and not db_only:
        with TemporaryDirectory(prefix="orthobench-check-") as folder:
            place = str(Path(folder) / "check.db")
            with open_store(place, create=True) as store:
                yield store, place
        return
    place = db or DEFAULT_DATABASE
    if not db_only:
        check_writable(place)
    with open_store(place, create=not db_only) as store:
        yield store, place
