"""What `run` and `sweep` share: signals, one run with its display, and its result in words."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
import typer

from orthobench.checkpoint import CheckpointFolder
from orthobench.cli.progress import Progress
from orthobench.cli.records import cell
from orthobench.errors import UsageError
from orthobench.spec import Resolved
from orthobench.store import Run, Status, Store
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
