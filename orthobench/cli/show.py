"""`orthobench show`: show one run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, Json


def command(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="The run's key, or its first digits; `orthobench ls` lists them.")
    ],
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """Show one run: settings, environment, results, and the command that repeats it."""
    from orthobench.cli import records
    from orthobench.store import open_store
    from orthobench.training.locks import status_in

    with open_store(db) as store:
        stored = store.get(run)
        metrics = store.metrics([stored.id])
        brief = records.brief(stored, status_in(store, db)(stored))
    series: dict[str, list[dict[str, Any]]] = {}
    for row in metrics:
        point = {"epoch": row.epoch, "iteration": row.iteration, "value": row.value}
        series.setdefault(f"{row.split}/{row.name}", []).append(point)
    record = brief | {
        "tags": stored.tags,
        "message": stored.message,
        "iterations": stored.iterations,
        "of": stored.total_iterations,
        "best_iteration": stored.best_iteration,
        "baselines": stored.baselines,
        "device": stored.device,
        "backend": stored.backend,
        "seconds": stored.seconds,
        "seconds_per_epoch": stored.seconds_per_epoch,
        "peak_memory": stored.peak_memory,
        "created_at": stored.created_at.isoformat(timespec="seconds"),
        "reproduce": reproduce(stored.spec),
        "spec": stored.spec,
        "environment": stored.environment.facts,
        "metrics": series,
    }
    if json:
        records.print_json(record)
        return
    console = records.console()
    for name, value in record.items():
        if isinstance(value, dict):
            console.print(f"[bold]{name}[/bold]")
            for inner, entry in value.items():
                text = _last(entry) if name == "metrics" else entry
                console.print(f"    {inner:<28} ", end="")
                console.print(records.cell(text), markup=False, soft_wrap=True)
        elif isinstance(value, list):
            console.print(f"[bold]{name:<32}[/bold] ", end="")
            console.print(", ".join(value) or "-", markup=False, soft_wrap=True)
        elif value is not None:
            console.print(f"[bold]{name:<32}[/bold] ", end="")
            console.print(records.cell(value), markup=False, soft_wrap=True)


def reproduce(spec: dict[str, Any]) -> str:
    """Return the command that repeats the run, also after a change of the defaults."""
    from orthobench.papers import experiments
    from orthobench.settings import merged_settings, text

    settings = merged_settings(spec)
    papers = set().union(*(each.settings for each in experiments(spec["task"], spec["model"])))
    if papers - settings.keys():  # the record leaves out neutral values; a paper's value would replace them
        settings = _neutral(spec) | settings
    overrides = " ".join(f"-s {name}={text(value)}" for name, value in settings.items())
    return f"orthobench run {spec['task']} {spec['model']} --seed {spec['seed']} {overrides}"


def _neutral(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the neutral settings, which a record may leave out; nothing if the plugins are not installed."""
    from orthobench.errors import UsageError
    from orthobench.plugins import Catalog
    from orthobench.task import TrainingSettings

    catalog = Catalog()
    try:
        task, model = (catalog.load(kind, spec[kind]).Settings for kind in ("task", "model"))
    except UsageError:
        return {}
    return {**task.neutral(), **model.neutral(), **TrainingSettings.neutral()}


def _last(points: list[dict[str, Any]]) -> str:
    first, last = points[0], points[-1]
    return f"{first['value']:.4g} -> {last['value']:.4g} ({len(points)} points)"
