"""`orthobench show`: everything about one run."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, Json


def command(
    run: Annotated[str, typer.Argument(metavar="RUN", help="The run's name, or its first digits.")],
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """Show one run.

    What it is, where it was made, what came out, and how to make it again.
    """
    from orthobench.cli import records
    from orthobench.store import open_store

    with open_store(db) as store:
        found = store.get(run)
        metrics = store.metrics([found.id])
        brief = records.brief(found, records.status_in(store, db)(found))
    series: dict[str, list[dict[str, Any]]] = {}
    for row in metrics:
        point = {"epoch": row.epoch, "iteration": row.iteration, "value": row.value}
        series.setdefault(f"{row.split}/{row.name}", []).append(point)
    record = brief | {
        "tags": found.tags,
        "message": found.message,
        "iterations": found.iterations,
        "of": found.total_iterations,
        "best_iteration": found.best_iteration,
        "baselines": found.baselines,
        "device": found.device,
        "backend": found.backend,
        "seconds": found.seconds,
        "seconds_per_epoch": found.seconds_per_epoch,
        "peak_memory": found.peak_memory,
        "created_at": found.created_at.isoformat(timespec="seconds"),
        "reproduce": reproduce(found.spec),
        "spec": found.spec,
        "environment": found.environment.facts,
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
    """The command that makes the run again, whatever the defaults have become."""
    from orthobench.papers import experiments
    from orthobench.settings import merged_settings, text

    settings = merged_settings(spec)
    papers = set().union(*(one.settings for one in experiments(spec["task"], spec["model"])))
    if papers - settings.keys():  # at a neutral value, which the record leaves out: a paper's would be taken for it
        settings = _neutral(spec) | settings
    given = " ".join(f"-s {name}={text(value)}" for name, value in settings.items())
    return f"orthobench run {spec['task']} {spec['model']} --seed {spec['seed']} {given}"


def _neutral(spec: dict[str, Any]) -> dict[str, Any]:
    """What a record may leave out, at the value that it then has; nothing where the plugins are not here."""
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
