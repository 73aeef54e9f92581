"""What `run`, `sweep` and `study` share: signals, a plan, runs with their display, and results in words."""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

import torch
import typer

from orthobench.cli.options import checkpoint_root
from orthobench.cli.progress import Progress, SideBySide
from orthobench.cli.records import cell, console
from orthobench.data import data_folder
from orthobench.errors import UsageError
from orthobench.execution.budget import Budget, show_duration
from orthobench.execution.estimate import Estimate
from orthobench.execution.job import Ending, Executor, Job, Outcome, train_job
from orthobench.execution.processes import ProcessExecutor, worker_slots
from orthobench.execution.ray import RayCluster, RayExecutor
from orthobench.execution.serial import SerialExecutor
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.open import DatabaseNotFoundError
from orthobench.sweep.plan import PlannedRun
from orthobench.training.lifecycle import BackendName, DeviceName
from orthobench.training.loop import OnDivergence


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


def cluster(
    executor: str,
    db: str,
    checkpoints: str | None,
    device: DeviceName,
    threads: int,
    gpu_share: int,
    at_once: int | None,
    data_folder: Path | None,
) -> RayCluster:
    """The cluster that `--executor` names.

    Raises:
        UsageError: there is none, or its machines cannot share the database or the checkpoints.
    """
    if executor != "ray" and not executor.startswith("ray://"):
        raise UsageError(f"--executor {executor} is not known: give local, ray, or ray://host:10001")
    if at_once == 0:
        raise UsageError("-j 0 is for runs in this process: leave it out with --executor ray, or give a limit")
    address = None if executor == "ray" else executor
    return RayCluster(address, db, checkpoints, device, threads, gpu_share, at_once, data_folder)


@dataclass(frozen=True)
class Session:
    """Where and how the runs of one command are trained."""

    store: Store
    database: str
    device: torch.device
    backend: BackendName
    checkpoint_every: float
    stop: StopRequest
    plugins: Sequence[Path] = ()
    on_divergence: OnDivergence = "stop"
    place: str | None = None  # of the checkpoints, where one was named
    tags: Sequence[str] = ()

    @property
    def checkpoints(self) -> Path | str:
        return checkpoint_root(self.database, self.place)

    def job(self, config: RunConfig, label: str) -> Job:
        """A run as other processes can carry it out, wherever they are started."""
        file = self.database if "://" in self.database else str(Path(self.database).absolute())
        return Job(
            config.spec,
            label,
            file,
            self.checkpoints if isinstance(self.checkpoints, str) else str(self.checkpoints.absolute()),
            tuple(str(plugin.absolute()) for plugin in self.plugins),
            str(data_folder().absolute()),
            "cuda" if self.device.type == "cuda" else "cpu",
            self.backend,
            None,
            self.checkpoint_every,
            self.on_divergence,
            tuple(self.tags),
            config=config,
        )

    def train(self, config: RunConfig, label: str) -> Run:
        """Train with a display. The record that comes back may be of a run made before."""
        with Progress(label) as progress:
            return train_job(self.job(config, label), progress, self.stop, self.store)

    def in_this_process(self) -> Executor:
        return SerialExecutor(lambda job: Progress(job.label), self.stop, self.store)

    def train_missing(
        self,
        planned: Sequence[PlannedRun],
        at_once: int | None,
        gpu_share: int,
        budget: Budget | None = None,
        cluster: RayCluster | None = None,
    ) -> int:
        """Train what a plan lacks, as `carry_out` does."""
        return self.carry_out(self.jobs(planned, lambda one: one.label), at_once, gpu_share, budget, cluster)

    def carry_out(
        self,
        jobs: Sequence[Job],
        at_once: int | None,
        gpu_share: int,
        budget: Budget | None = None,
        cluster: RayCluster | None = None,
    ) -> int:
        """Train runs and return how many failed: one that does ends no other.

        Args:
            at_once: runs at once, each in a process of its own; 0: one after the other in this one; None: as many as
                there are cores or GPUs.
            budget: once it is spent, no further run is started.
            cluster: where to instead, with limits of its own.

        Raises:
            UsageError: none of them could be started.
            typer.Exit: the user stopped it.
        """
        if cluster is not None:
            with SideBySide(len(jobs)) as display:
                tasks = RayExecutor(cluster, self.store, display.open_sink, self.stop, display.print_line)
                return self._carry_out(jobs, tasks, display.print_line, budget)
        if at_once == 0:
            return self._carry_out(jobs, self.in_this_process(), lambda text: typer.echo(text, err=True), budget)
        cores = torch.get_num_threads()
        where = worker_slots(self.device, at_once, gpu_share, cores)
        with SideBySide(len(jobs)) as display:
            executor = ProcessExecutor(self.store, where, cores, display.open_sink, self.stop, display.print_line)
            return self._carry_out(jobs, executor, display.print_line, budget)

    def jobs(self, planned: Sequence[PlannedRun], name: Callable[[PlannedRun], str]) -> list[Job]:
        """The runs of a plan that are wanted, numbered."""
        wanted = [one for one in planned if one.is_pending]
        return [
            self.job(one.config, f"[{number}/{len(wanted)}] {name(one)} seed {one.config.spec.seed}")
            for number, one in enumerate(wanted, 1)
        ]

    def _outcomes(self, executor: Executor, jobs: Sequence[Job], budget: Budget | None) -> Iterator[Outcome]:
        with self.store.waiting(self.stop):
            yield from executor.run(jobs, lambda: budget is None or not budget.is_spent())

    def _carry_out(
        self, jobs: Sequence[Job], executor: Executor, say: Callable[[str], None], budget: Budget | None
    ) -> int:
        endings = Counter[Ending]()
        refusals: dict[str, None] = {}
        for outcome in self._outcomes(executor, jobs, budget):
            endings[outcome.ending] += 1
            label, cause = outcome.job.label, outcome.cause
            if outcome.ending in (Ending.FAILED, Ending.DIVERGED):
                say(f"{label} {outcome.ending}: {cause}")
            elif outcome.ending == Ending.REFUSED:
                if cause not in refusals:  # a full disk would be told for every run
                    say(f"{label} cannot be started: {cause}")
                refusals[cause] = None
            elif outcome.ending == Ending.PRUNED:
                say(f"{label} {cause}")
            elif outcome.ending == Ending.BUSY:
                say(f"{label} is left to another process: {cause}")
        left = len(jobs) - endings.total()
        if left and not self.stop():
            say(f"the budget is spent: {left} runs are left for another time")
        elif endings[Ending.INTERRUPTED] or left:
            say("stopped; the same command goes on from here")
            raise typer.Exit(130)
        if jobs and endings[Ending.REFUSED] == len(jobs):
            raise UsageError(next(iter(refusals)))
        return endings[Ending.FAILED] + endings[Ending.REFUSED]


def at_once(device: torch.device, jobs: int | None, gpu_share: int) -> int:
    """How many runs are trained beside each other, as `train_missing` does."""
    return 1 if jobs == 0 else len(worker_slots(device, jobs, gpu_share, torch.get_num_threads()))


def report_failures(failed: int, of: int) -> None:
    """End the command with code 1 if runs failed."""
    if failed:
        typer.echo(f"{failed} of {of} runs failed: `orthobench ls --status failed` lists them", err=True)
        raise typer.Exit(1)


def existing(db: str) -> Store | None:
    """The database, if there is one already."""
    try:
        return open_store(db)
    except DatabaseNotFoundError:
        return None


def print_plan(
    planned: Sequence[PlannedRun], estimates: Mapping[str, Estimate] | None = None, left_out: Container[str] = ()
) -> None:
    """Every run and its state, and what is estimated of it, by key; then how many there are of each state."""
    from rich.table import Table

    several = len({one.config.spec.task for one in planned}) > 1
    headings = ("run", *(("task",) if several else ()), "model", "settings", "seed", "state")
    table = Table(*headings, *(() if estimates is None else ("time", "memory", "judged by")), box=None)
    for one in planned:
        spec = one.config.spec
        settings = " ".join(f"{key}={value}" for key, value in one.settings.items())
        state = f"{one.state}, left out" if spec.key in left_out else one.state
        row = [spec.key, *((spec.task,) if several else ()), spec.model, settings, str(spec.seed), state]
        if estimates is not None:
            row += _estimated(estimates.get(spec.key))
        table.add_row(*row)
    console().print(table)
    states = [one.state for one in planned]
    typer.echo(", ".join(f"{states.count(state)} {state}" for state in dict.fromkeys(states)))
    for change in dict.fromkeys(one.change for one in planned if one.older_run):
        keys = " ".join(one.older_run.key for one in planned if one.older_run and one.change == change)
        typer.echo(f"stale: {change}; the older results stay in the database: {keys}")


def _estimated(estimate: Estimate | None) -> list[str]:
    if estimate is None:
        return ["", "", ""]
    time = "?" if estimate.seconds is None else f"~ {show_duration(estimate.seconds)}"
    return [time, "" if estimate.memory is None else f"{estimate.memory / 2**20:.0f} MiB", estimate.source]


def describe(run: Run) -> str:
    """A run's outcome in one line."""
    final, best, baseline = (cell(value) for value in (run.final_value, run.best_value, run.baselines[run.metric]))
    text = f"run {run.key} {run.status}: {run.metric} {final}, best {best}, baseline {baseline}"
    return f"{text} ({run.message})" if run.status == Status.DIVERGED else text
