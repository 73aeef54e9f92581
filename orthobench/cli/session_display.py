"""The display of sessions on the command line: plans and searches on stdout, progress on stderr."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import typer
from rich.filesize import decimal

from orthobench import api
from orthobench.cli.options import spelled
from orthobench.cli.records import NAME, TEXT, cell, console, print_table, show_duration
from orthobench.display.progress import ProgressDisplay
from orthobench.errors import counted

SHOWN_TRIALS = 10


class TerminalDisplay(ProgressDisplay):
    """A display of a session on the terminal.

    Args:
        quiet: show no progress, only what went wrong.
        plan: print the plan of a sweep on stdout before its runs train.
        best_command: returns the command that trains the best trial of a search with more seeds.
    """

    def __init__(
        self,
        quiet: bool = False,
        plan: bool = True,
        best_command: Callable[[api.TuningResult], str] | None = None,
    ) -> None:
        super().__init__(quiet, spelled)
        self.plan, self.best_command = plan, best_command

    def on_sizes(self, sizes: Sequence[api.MatchedSize]) -> None:
        if not self.plan:
            return
        rows = [(s.model, str(s.hidden_size), str(s.parameters), str(s.target), f"{s.deviation:+.1%}") for s in sizes]
        print_table(("model", "hidden_size", "parameters", "target", "deviation"), rows, folds={"model": TEXT})
        typer.echo()

    def on_plan(self, plan: api.SweepPlan) -> None:
        if self.plan:
            print_plan(plan)
        elif plan.left_out:
            typer.echo(_left_out(plan), err=True)

    def on_search(self, tuning: api.Tuning, trials: Sequence[api.Trial], plan: api.SweepPlan | None) -> None:
        if not self.plan:
            return
        search, metric = tuning.search, tuning.search.metric
        if search.match_parameters is not None:
            count = search.match_parameters
            words = f"as many parameters as {count}" if isinstance(count, str) else f"{count} parameters"
            typer.echo(f"hidden_size: chosen for each trial, for {words}")
        direction = "lowest" if metric.goal == "min" else "highest"
        typer.echo(f"search {search.task} {search.model}: " + ", ".join(map("=".join, search.space.texts.items())))
        objective = f"the {direction} {metric.name} of a run's tests"
        typer.echo(f"objective: {objective}, on the validation split, or else the test split")
        states = [trial.state for trial in trials]
        counts = [f"{states.count(state)} {state}" for state in dict.fromkeys(states)]
        counts.append(f"{tuning.trial_count - len(states)} to come")
        typer.echo(", ".join([counted(tuning.trial_count, "trial"), *counts]))
        if plan is not None:
            typer.echo(f"to train: {_in_words(plan.totals())}")

    def on_search_end(self, result: api.TuningResult) -> None:
        if self.best_command is not None:
            print_trials(result, self.best_command(result))


def print_plan(plan: api.SweepPlan) -> None:
    """Print every run with its state and estimate, the number of runs by state, and the totals.

    Settings that all runs of a task share are printed once, above the runs.
    """
    shared = {task: {**plan.given, **settings} for task, settings in _shared_settings(plan).items()}
    several = len(shared) > 1
    for task, settings in shared.items():
        if settings:
            typer.echo(f"every run{f' of {task}' if several else ''}: {cell(settings)}")
    estimates = ("time", "memory", "judged by") if plan.estimates else ()
    rows = []
    for run in plan.runs:
        spec = run.config.spec
        own = {name: value for name, value in run.settings.items() if name not in shared[spec.task]}
        state = f"{run.state}, left out" if run.key in plan.left_out else run.state
        row = [run.key, *([spec.task] if several else []), spec.model, cell(own), str(spec.seed), state]
        rows.append([*row, *(_estimate_cells(plan.estimates.get(run.key)) if plan.estimates else ())])
    headings = ("run", *(("task",) if several else ()), "model", "settings", "seed", "state", *estimates)
    print_table(headings, rows, optional=estimates, folds={"model": NAME, "settings": TEXT, "judged by": TEXT})
    states = [run.state for run in plan.runs]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for change in dict.fromkeys(run.change for run in plan.runs if run.older_run):
        keys = " ".join(run.older_run.key for run in plan.runs if run.older_run and run.change == change)
        typer.echo(f"stale: {change}; the older results stay in the database: {keys}")
    if plan.estimates is None:
        return
    console().print(f"to train: {_in_words(plan.totals())}")
    if plan.budget is not None:
        typer.echo(f"within {show_duration(plan.budget)}: {_in_words(plan.totals(selected_only=True))}")
        if plan.left_out:
            typer.echo(_left_out(plan))


def _shared_settings(plan: api.SweepPlan) -> dict[str, dict[str, str]]:
    """Return the settings that the runs of each task have in common; a single run shares none."""
    by_task: dict[str, list[dict[str, str]]] = {}
    for run in plan.runs:
        by_task.setdefault(run.config.spec.task, []).append(run.settings)
    shared = {}
    for task, (first, *others) in by_task.items():
        common = {name: value for name, value in first.items() if all(each.get(name) == value for each in others)}
        shared[task] = common if others else {}
    return shared


def print_trials(result: api.TuningResult, command: str) -> None:
    """Print the best trials, and the command that trains the best one with more seeds."""
    search, trials = result.tuning.search, result.trials
    rows = [list(map(cell, record.values())) for record in result.records()[:SHOWN_TRIALS]]
    headings = ("trial", "run", "settings", "state", "judged by", "best")
    print_table(headings, rows, optional=["run", "judged by"], folds={"settings": TEXT})
    if len(trials) > SHOWN_TRIALS:
        typer.echo(f"and {len(trials) - SHOWN_TRIALS} more")
    if result.is_exhausted:
        typer.echo(f"the space has only these {len(trials)} points")
    if result.best is None:
        typer.echo("no trial has finished")
        return
    if result.best.split == "test":
        typer.echo(
            f"{search.task} has no validation split: the best was selected on the test set, as the papers "
            "did, so its value is optimistic"
        )
    typer.echo(f"to train the best with more seeds:\n    {command}")


def _left_out(plan: api.SweepPlan) -> str:
    """Say how many runs the budget leaves out, and how many of them because their time cannot be estimated."""
    unknown = sum((plan.estimates or {})[key].seconds is None for key in plan.left_out)
    words = f"the budget leaves out {len(plan.left_out)} of {counted(len(plan.runs), 'run')}"
    if unknown:
        words += f", {unknown} of them because their time cannot be estimated"
    return words


def _estimate_cells(estimate: api.Estimate | None) -> list[str]:
    if estimate is None:
        return ["", "", ""]
    time = "?" if estimate.seconds is None else f"~ {show_duration(estimate.seconds)}"
    return [time, "" if estimate.memory is None else f"{estimate.memory / 2**20:.0f} MiB", estimate.source]


def _in_words(totals: api.Totals) -> str:
    """Describe the number of runs, their time and their memory in one line."""
    runs = counted(totals.runs, "run")
    if totals.seconds is None:
        return runs if not totals.runs else f"{runs} without an estimate"
    parts = [runs, f"about {show_duration(totals.seconds)} one after the other"]
    if totals.at_once > 1:
        parts.append(f"{show_duration(totals.seconds_at_once)} with {totals.at_once} at once")
    if totals.memory is not None:
        parts.append(f"at most {totals.memory / 2**20:.0f} MiB")
    if totals.lacks_memory and totals.machine is not None:
        fewer = "fewer runs at once (-j) or " if totals.at_once > 1 else ""
        machine = f"{totals.machine / 2**20:.0f} MiB"
        parts.append(f"more than this machine's {machine} ({fewer}smaller batches need less)")
    if totals.weights:
        parts.append(f"about {decimal(totals.weights)} of weights to keep")
    if totals.unknown:
        parts.append(f"and {totals.unknown} more without an estimate")
    return ", ".join(parts)
