"""Print the states and the results of runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import typer

from orthobench.cli.records import cell, console
from orthobench.store import Status

if TYPE_CHECKING:
    from orthobench.analysis.variants import Variant
    from orthobench.store import Run


class RunState(NamedTuple):
    """A run of a sweep and its state; `estimate` contains the table cells for time, memory and their source."""

    key: str
    task: str
    model: str
    settings: Mapping[str, str]
    seed: int
    state: str
    is_left_out: bool = False
    estimate: Sequence[str] | None = None


def print_states(runs: Sequence[RunState]) -> None:
    """Print every run with its state and estimate, and then the number of runs by state.

    Settings that all runs of a task share are printed once, above the runs.
    """
    from rich.table import Table

    shared = _shared_settings(runs)
    several = len(shared) > 1
    for task, settings in shared.items():
        if settings:
            typer.echo(f"every run{f' of {task}' if several else ''}: {cell(settings)}")
    headings = ("run", *(("task",) if several else ()), "model", "settings", "seed", "state")
    has_estimates = any(run.estimate is not None for run in runs)
    table = Table(*headings, *(("time", "memory", "judged by") if has_estimates else ()), box=None)
    for run in runs:
        own = {name: value for name, value in run.settings.items() if name not in shared[run.task]}
        state = f"{run.state}, left out" if run.is_left_out else run.state
        tasks = [run.task] if several else []
        table.add_row(run.key, *tasks, run.model, cell(own), str(run.seed), state, *(run.estimate or ()))
    console().print(table)
    states = [run.state for run in runs]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))


def _shared_settings(runs: Sequence[RunState]) -> dict[str, dict[str, str]]:
    """Return the settings that the runs of each task have in common; a single run shares none."""
    shared: dict[str, dict[str, str]] = {}
    for run in runs:
        settings = shared.setdefault(run.task, dict(run.settings))
        shared[run.task] = {name: value for name, value in settings.items() if run.settings.get(name) == value}
    counts = Counter(run.task for run in runs)
    return {task: settings if counts[task] > 1 else {} for task, settings in shared.items()}


def print_summary(rows: list[Variant]) -> None:
    """Print the results of each variant over its seeds."""
    from rich.table import Table

    headings = ("model", "seeds", "metric", "final [95 %]", "best [95 %]", "diverged", "parameters", "s/epoch")
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


def describe(run: Run) -> str:
    """Describe the result of a run in one line."""
    final, best, baseline = (cell(value) for value in (run.final_value, run.best_value, run.baselines[run.metric]))
    text = f"run {run.key} {run.status}: {run.metric} {final}, best {best}, baseline {baseline}"
    return f"{text} ({run.message})" if run.message and Status(run.status).is_final else text
