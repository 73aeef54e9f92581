"""What `run`, `sweep` and `study` share: signals, a plan, runs with their display, and results in words."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
import typer

from orthobench.checkpoint import CheckpointFolder
from orthobench.cli.progress import Progress
from orthobench.cli.records import cell, console
from orthobench.errors import UsageError
from orthobench.spec import Resolved
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.open import sqlite_file
from orthobench.sweep.estimate import Estimate
from orthobench.sweep.plan import PlannedRun
from orthobench.train import BackendName, Interrupted, train


class StopRequest:
    """Whether the user asked to stop: the first Ctrl-C ends the run at its next iteration, the second at once."""

    def __init__(self) -> None:
        self.made = False

    def __call__(self) -> bool:
        return self.made

    def handle(self, number: int, frame: FrameType | None) -> None:
        if self.made:
            raise KeyboardInterrupt
        self.made = True
        typer.echo("stopping after this iteration; once more stops at once", err=True)


@contextmanager
def stop_on_signals() -> Iterator[StopRequest]:
    request = StopRequest()
    before = {number: signal.signal(number, request.handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield request
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass(frozen=True)
class Session:
    """Where and how the runs of one command are trained."""

    store: Store
    checkpoints: Path
    device: torch.device
    backend: BackendName
    checkpoint_every: float
    stop: StopRequest

    def train(self, resolved: Resolved, label: str) -> Run:
        """Train with a display. The record that comes back may be of a run made before."""
        with Progress(label) as progress:
            return train(
                resolved,
                self.store,
                CheckpointFolder(self.checkpoints, resolved.spec.key),
                self.device,
                progress,
                self.stop,
                self.checkpoint_every,
                self.backend,
            )

    def train_missing(self, planned: Sequence[PlannedRun]) -> int:
        """Train what a plan lacks and return how many runs failed: one that does ends no other.

        Raises:
            typer.Exit: the user stopped it.
        """
        try:
            trained = list(train_all(self, planned, lambda one: one.label))
        except Interrupted:
            typer.echo("stopped; the same command goes on from here", err=True)
            raise typer.Exit(130) from None
        return sum(one.is_wanted for one in planned) - len(trained)


def report_failures(failed: int, of: int) -> None:
    """End the command with code 1 if runs failed."""
    if failed:
        typer.echo(f"{failed} of {of} runs failed: `orthobench ls --status failed` lists them", err=True)
        raise typer.Exit(1)


def existing(db: str) -> Store | None:
    """The database, if there is one already."""
    file = sqlite_file(db)
    return None if file is not None and not file.exists() else open_store(db)


def print_plan(planned: Sequence[PlannedRun], estimates: Mapping[str, Estimate] | None = None) -> None:
    """Every run and its state, and what is estimated of it, by key; then how many there are of each state."""
    from rich.table import Table

    headings = ("run", "model", "settings", "seed", "state")
    table = Table(*headings, *(() if estimates is None else ("time", "memory", "judged by")), box=None)
    for one in planned:
        spec = one.resolved.spec
        settings = " ".join(f"{key}={value}" for key, value in one.chosen.items())
        row = [spec.key, spec.model, settings, str(spec.seed), one.state]
        if estimates is not None:
            row += _estimated(estimates.get(spec.key))
        table.add_row(*row)
    console().print(table)
    states = [one.state for one in planned]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for change in dict.fromkeys(one.change for one in planned if one.older):
        keys = " ".join(one.older.key for one in planned if one.older and one.change == change)
        typer.echo(f"stale: {change}; the older results stay in the database: {keys}")


def _estimated(estimate: Estimate | None) -> list[str]:
    from orthobench.sweep.budget import show_duration

    if estimate is None:
        return ["", "", ""]
    time = "?" if estimate.seconds is None else f"~ {show_duration(estimate.seconds)}"
    return [time, "" if estimate.memory is None else f"{estimate.memory / 2**20:.0f} MiB", estimate.source]


def train_all(session: Session, planned: Sequence[PlannedRun], name: Callable[[PlannedRun], str]) -> Iterator[Run]:
    """Train the runs that are wanted, one by one as they are asked for; one that fails is told and ends nothing.

    Raises:
        UsageError: a run cannot be started.
        Interrupted: the user asked to stop.
    """
    wanted = [one for one in planned if one.is_wanted]
    for number, one in enumerate(wanted, 1):
        label = f"[{number}/{len(wanted)}] {name(one)} seed {one.resolved.spec.seed}"
        try:
            run = session.train(one.resolved, label)
        except (Interrupted, UsageError):
            raise
        except Exception as error:
            typer.echo(f"{label} failed: {type(error).__name__}: {error}", err=True)
        else:
            yield run


def describe(run: Run) -> str:
    """A run's outcome in one line."""
    final, best, baseline = (cell(value) for value in (run.final_value, run.best_value, run.baselines[run.metric]))
    text = f"run {run.key} {run.status}: {run.metric} {final}, best {best}, baseline {baseline}"
    return f"{text} ({run.message})" if run.status == Status.DIVERGED else text
