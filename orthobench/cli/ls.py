"""`orthobench ls`: the runs in the database."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from orthobench.cli.options import DEFAULT_DATABASE, Database, Json, ModelFilter, TagFilter, TaskFilter, checkpoint_root

if TYPE_CHECKING:
    from orthobench.store import Run

HEADINGS = ("run", "task", "model", "seed", "status", "epochs", "metric", "final", "best", "parameters")


def command(
    task: TaskFilter = None,
    model: ModelFilter = None,
    status: Annotated[
        Literal["running", "finished", "diverged", "failed", "interrupted"] | None,
        typer.Option("--status", help="Only runs in this state."),
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="Only this seed.")] = None,
    tag: TagFilter = None,
    db: Database = DEFAULT_DATABASE,
    json: Json = False,
) -> None:
    """List the runs in the database."""
    from orthobench.cli import records
    from orthobench.store import open_store

    with open_store(db) as store:
        runs = store.runs(task=task, model=model, seed=seed, tag=tag)
        checkpoints = checkpoint_root(db)
        listed = [records.brief(run, store, checkpoints) for run in runs]
        others = [] if runs else store.runs()
    if status is not None:
        listed = [record for record in listed if record["status"] == status]
    if json:
        records.print_json(listed)
        return
    if not listed:
        typer.echo(f"no runs are {status}" if runs else f"no runs{_none_of(others)}")
        return
    headings = [*HEADINGS, *(["tags"] if any(record["tags"] for record in listed) else [])]
    records.print_columns(headings, [[records.cell(record[name]) for name in headings] for record in listed])


def _none_of(runs: Sequence[Run]) -> str:
    """What there is where nothing fits what was asked for."""
    if not runs:
        return ""
    tasks, models = (", ".join(sorted(names)) for names in ({run.task for run in runs}, {run.model for run in runs}))
    return f" fit, of {len(runs)}; tasks: {tasks}; models: {models}"
