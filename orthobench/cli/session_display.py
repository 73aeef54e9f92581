"""The display of sessions on the command line: plans and searches on stdout, progress on stderr."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

import typer

from orthobench.cli.options import spelled
from orthobench.cli.records import RunState, cell, console, print_columns, print_states
from orthobench.display.progress import ProgressDisplay
from orthobench.errors import counted
from orthobench.system.output import lasting_output

if TYPE_CHECKING:
    from orthobench.planning.estimate import Estimate
    from orthobench.planning.match import MatchedSize
    from orthobench.planning.search import Trial, Tuning, TuningResult
    from orthobench.planning.sweep_plan import SweepPlan, Totals
    from orthobench.session.session import SweepResult

SHOWN_TRIALS = 10
LEFT_TO_ANOTHER = 3
"""The exit code of a sweep if another process is still training some of its runs."""


class TerminalDisplay(ProgressDisplay):
    """A display of a session on the terminal.

    Args:
        quiet: show no progress, only what went wrong.
        plan: print the plan of a sweep on stdout before its runs train.
    """

    def __init__(self, quiet: bool = False, plan: bool = True) -> None:
        super().__init__(quiet, spelled)
        self.plan = plan

    def on_sizes(self, sizes: Sequence[MatchedSize]) -> None:
        if not self.plan:
            return
        rows = [(s.model, str(s.hidden_size), str(s.parameters), str(s.target), f"{s.deviation:+.1%}") for s in sizes]
        print_columns(("model", "hidden_size", "parameters", "target", "deviation"), rows)
        typer.echo()

    def on_plan(self, plan: SweepPlan) -> None:
        if self.plan:
            print_plan(plan)
        elif plan.left_out:
            typer.echo(_left_out(plan), err=True)

    def on_search(self, tuning: Tuning, trials: Sequence[Trial], plan: SweepPlan | None) -> None:
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


@contextmanager
def resumable(display: TerminalDisplay, hint: str = "; the same command resumes") -> Iterator[TerminalDisplay]:
    """Display a session. If the user stops it, end the command with code 130; a closed pipe does not stop it.

    Raises:
        typer.Exit: the user stopped the session.
    """
    with lasting_output():
        try:
            yield display
        except KeyboardInterrupt:
            typer.echo(f"stopped{hint}", err=True)
            raise typer.Exit(130) from None


def report_failures(failed: int, total: int, refused: int = 0) -> None:
    """End the command with code 1 if runs failed.

    Args:
        refused: how many of the failed runs could not start, so that the database has no record of them.

    Raises:
        typer.Exit: runs failed.
    """
    if not failed:
        return
    stored = failed - refused
    shown = stored if refused else "them"
    listed = (
        f"; `orthobench ls --status failed` lists {shown}, and -v before the same command shows the calls"
        if stored
        else ""
    )
    unstored = f", of which {refused} could not start" if refused else ""
    typer.echo(f"{failed} of {counted(total, 'run')} failed{unstored}{listed}", err=True)
    raise typer.Exit(1)


def report_sweep(result: SweepResult) -> None:
    """End the command with code 1 if runs failed, else with code 3 if another process is still training runs.

    Raises:
        typer.Exit: runs failed, or another process is still training some.
    """
    report_failures(len(result.failed), len(result.plan.runs), result.refused)
    if result.left:
        runs = f"{len(result.left)} of {len(result.plan.runs)} runs"
        typer.echo(f"{runs} are left to another process: the same command later shows their results", err=True)
        raise typer.Exit(LEFT_TO_ANOTHER)


def print_plan(plan: SweepPlan) -> None:
    """Print every run with its state and estimate, the number of runs by state, and the totals."""
    from orthobench.planning.budget import show_duration

    print_states(
        [
            RunState(
                run.key,
                run.config.spec.task,
                run.config.spec.model,
                run.settings,
                run.config.spec.seed,
                run.state,
                run.key in plan.left_out,
                None if plan.estimates is None else _estimate_cells(plan.estimates.get(run.key)),
            )
            for run in plan.runs
        ],
        plan.given,
    )
    for change in dict.fromkeys(run.change for run in plan.runs if run.older_run):
        keys = " ".join(run.older_run.key for run in plan.runs if run.older_run and run.change == change)
        typer.echo(f"stale: {change}; the older results stay in the database: {keys}")
    if plan.estimates is None:
        return
    typer.echo(f"to train: {_in_words(plan.totals())}")
    if plan.budget is not None:
        typer.echo(f"within {show_duration(plan.budget)}: {_in_words(plan.totals(selected_only=True))}")
        if plan.left_out:
            typer.echo(_left_out(plan))


def print_trials(result: TuningResult, command: str) -> None:
    """Print the best trials, and the command that trains the best one with more seeds."""
    from rich.table import Table

    search, trials = result.tuning.search, result.trials
    table = Table("trial", "run", "settings", "state", "judged by", "best", box=None)
    for record in result.records()[:SHOWN_TRIALS]:
        table.add_row(*map(cell, record.values()))
    console().print(table)
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


def _left_out(plan: SweepPlan) -> str:
    """Say how many runs the budget leaves out, and how many of them because their time cannot be estimated."""
    unknown = sum((plan.estimates or {})[key].seconds is None for key in plan.left_out)
    words = f"the budget leaves out {len(plan.left_out)} of {counted(len(plan.runs), 'run')}"
    if unknown:
        words += f", {unknown} of them because their time cannot be estimated"
    return words


def _estimate_cells(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", "", ""]
    time = "?" if estimate.seconds is None else f"~ {_range(estimate.seconds, estimate.slowest)}"
    return [time, "" if estimate.memory is None else f"{estimate.memory / 2**20:.0f} MiB", estimate.source]


def _range(fastest: float, slowest: float | None) -> str:
    """Format a time, with the longest one if comparable runs differ, for example "4m 10s to 7m"."""
    from orthobench.planning.budget import show_duration

    low, high = show_duration(fastest), show_duration(slowest or fastest)
    return low if high == low else f"{low} to {high}"


def _in_words(totals: Totals) -> str:
    """Describe the number of runs, their time and their memory in one line."""
    from rich.filesize import decimal

    from orthobench.planning.budget import show_duration

    runs = counted(totals.runs, "run")
    if totals.seconds is None:
        return runs if not totals.runs else f"{runs} without an estimate"
    parts = [runs, f"about {_range(totals.seconds, totals.slowest)} one after the other"]
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
