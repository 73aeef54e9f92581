"""Sweeps in processes of their own: wait for their progress, and read their numbers."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from orthobench.store import open_store

Start = Callable[..., subprocess.Popen[str]]

SLOW_MODEL = """
import time
from pathlib import Path

from orthobench.models.scornn import ScoRNN


class Slow(ScoRNN):
    steps = 0

    def after_step(self):
        super().after_step()
        self.steps += 1
        if self.steps > {steps} and Path({file!r}).exists():
            time.sleep(0.1)
"""


@contextmanager
def sweeps_in(folder: Path) -> Iterator[Start]:
    """Yield a function that starts `orthobench sweep adding` on an executor; its processes end with the block."""
    processes = []

    def start(executor: str, environment: Mapping[str, str], *arguments: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-m", "orthobench", "sweep", "adding", "--executor", executor, *arguments],
            cwd=folder,
            env={name: value for name, value in os.environ.items() if name != "ORTHOBENCH_JOBS"} | dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        processes.append(process)
        return process

    yield start
    for process in processes:
        process.kill()
        process.wait()
        if process.stdout:
            process.stdout.close()


def slow_model(folder: Path, steps: int) -> tuple[Path, Path]:
    """Write the plugin `slow`: scoRNN, which after its first steps in a process sleeps while a file exists.

    A test stops such a run at a place that the speed of the machine does not decide.

    Returns:
        The plugin, and the file: without it the same runs go on at full speed.
    """
    plugin, file = folder / "slow.py", folder / "slow"
    plugin.write_text(SLOW_MODEL.format(steps=steps, file=str(file)))
    return plugin, file


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    """Wait until a condition holds; a process that ends before fails the test."""
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline or process.poll() is not None:
            process.kill()
            pytest.fail(f"it ended or stood still: {process.communicate()[0]}")
        time.sleep(0.1)


def numbers(database: str):
    """Return all that was logged, by run, without the times."""
    with open_store(database) as store:
        return {
            run.key: (
                run.status,
                run.iterations,
                run.final_value,
                [(m.split, m.name, m.epoch, m.iteration, m.value) for m in store.metrics([run.id])],
                [(t.name, t.epoch, t.iteration, list(t.values)) for t in store.traces([run.id])],
            )
            for run in store.runs()
        }


def iterations(database: str) -> dict[int, int]:
    """Return the iteration of the run of each seed."""
    with open_store(database, create=True) as store:
        return {run.seed: run.iterations for run in store.runs()}
