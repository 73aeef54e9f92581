"""What `run` and `sweep` share: signals, one run with its display, and its result in words."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

import typer

from orthobench.checkpoint import CheckpointFolder
from orthobench.cli.progress import Progress
from orthobench.spec import Resolved
from orthobench.store import Run, Status, Store
from orthobench.train import DeviceName, pick_device, train


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


def train_one(
    resolved: Resolved,
    store: Store,
    checkpoints: Path,
    device: DeviceName,
    stop: StopRequest,
    label: str,
    checkpoint_every: float,
) -> Run:
    """Train with a display. The record that comes back may be of a run made before."""
    with Progress(label) as progress:
        return train(
            resolved,
            store,
            CheckpointFolder(checkpoints, resolved.spec.key),
            pick_device(device),
            progress,
            stop,
            checkpoint_every,
        )


def describe(run: Run) -> str:
    """A run's outcome in one line."""
    value = "-" if run.final_value is None else f"{run.final_value:.4g}"
    best = "-" if run.best_value is None else f"{run.best_value:.4g}"
    text = f"run {run.key} {run.status}: {run.metric} {value}, best {best}, baseline {run.baselines[run.metric]:.4g}"
    return f"{text} ({run.message})" if run.status == Status.DIVERGED else text
