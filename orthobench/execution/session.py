"""A session: a database, and the means to plan and train runs into it.

A session prints nothing. Its progress goes to a `Display`, its results are records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

import psutil
import torch

from orthobench.data import data_folder
from orthobench.errors import UsageError
from orthobench.execution.budget import Budget, by_priority
from orthobench.execution.display import Display, JobsDisplay
from orthobench.execution.estimate import Estimate, Estimator, profile_job
from orthobench.execution.job import Ending, Executor, Job, Outcome, SinkFactory, train_job
from orthobench.execution.planner import SweepPlan, make_plan
from orthobench.execution.processes import ProcessExecutor, worker_slots
from orthobench.execution.ray import RayCluster, RayExecutor
from orthobench.execution.serial import SerialExecutor
from orthobench.execution.slurm import SlurmCluster
from orthobench.execution.slurm_executor import SlurmExecutor
from orthobench.execution.stop import Stopped, StopRequest, stop_on_signals
from orthobench.options import SweepOptions
from orthobench.planning.match import MatchedSize
from orthobench.planning.plan import PlannedRun, SweepRun, plan
from orthobench.sinks.live import LiveSinks
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store
from orthobench.store.location import sqlite_file
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at
from orthobench.training.events import EventSink, Tee
from orthobench.training.locks import lock
from orthobench.training.longer import begin_longer, why_not_longer
from orthobench.training.loop import Interrupted
from orthobench.training.profiling import RunProfile
from orthobench.weights.folder import remove as remove_weights
from orthobench.weights.folder import weights_folder


@dataclass(frozen=True)
class SweepResult:
    """The result of a sweep.

    Attributes:
        plan: the sweep's runs and their states before training.
        outcomes: the outcomes of the runs that trained, in the order in which they ended.
        not_started: number of runs that did not start within the budget.
        runs: the database's records of the sweep's runs after training.
        sizes: the hidden sizes that were chosen for equal parameter counts, each once.
    """

    plan: SweepPlan
    outcomes: list[Outcome] = field(default_factory=list)
    not_started: int = 0
    runs: list[Run] = field(default_factory=list)
    sizes: Sequence[MatchedSize] = ()

    @property
    def failed(self) -> list[Outcome]:
        """The outcomes of the runs that failed or could not start."""
        return [outcome for outcome in self.outcomes if outcome.ending in (Ending.FAILED, Ending.REFUSED)]

    @property
    def left(self) -> list[str]:
        """The keys of the runs that another process trains and has not finished."""
        locked = {run.key for run in self.plan.runs if run.is_locked}
        locked |= {outcome.job.spec.key for outcome in self.outcomes if outcome.ending == Ending.BUSY}
        return sorted(locked - {run.key for run in self.runs if Status(run.status).is_final})


@dataclass
class Session:
    """A database, and the means to plan and train runs into it. `orthobench.execution.open` makes one.

    Attributes:
        store: None in a dry run without a database.
        at_once: number of runs that train at the same time.
        seconds: the estimated time of each run of the newest plan that has estimates, by key.
    """

    store: Store | None
    database: str = field(repr=False)
    options: SweepOptions
    device: torch.device
    at_once: int
    display: Display = field(default_factory=Display)
    cluster: RayCluster | SlurmCluster | None = None
    budget: Budget | None = None
    logs: LiveSinks | None = None
    stop: StopRequest = field(init=False)
    seconds: dict[str, float | None] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.stop = StopRequest(self.display.on_stop_request)

    @property
    def open_store(self) -> Store:
        """The database of a session that trains."""
        assert self.store is not None
        return self.store

    @property
    def checkpoints(self) -> Path | str:
        """The folder or URL of all checkpoints."""
        return checkpoint_root(self.database, self.options.checkpoints)

    def plan(self, runs: Sequence[SweepRun], estimate: bool) -> SweepPlan:
        """Plan a sweep.

        Args:
            estimate: estimate the pending runs' time and memory; always done with a budget, and for groups on SLURM.
        """
        planned = plan(runs, self.store, self.checkpoints, self.options.on_divergence)
        budget = self.options.budget
        needs_estimates = estimate or budget is not None or isinstance(self.cluster, SlurmCluster)
        estimates = self._estimates(by_priority(planned)) if needs_estimates else None
        self.seconds = {key: entry.seconds for key, entry in (estimates or {}).items()}
        machine = psutil.virtual_memory().total if self.cluster is None else None
        return make_plan(planned, estimates, budget, self.at_once, machine)

    def sweep(
        self,
        runs: Sequence[SweepRun],
        dry_run: bool = False,
        estimate: bool = False,
        sizes: Sequence[MatchedSize] = (),
    ) -> SweepResult:
        """Plan a sweep and train its pending runs.

        Args:
            dry_run: plan only.
            estimate: as for `plan`.
            sizes: the hidden sizes that were chosen for the runs.

        Raises:
            UsageError: none of the runs could start.
            Stopped: the user stopped the session.
        """
        if not dry_run:
            self._tag([config for config, _ in runs])
        sweep_plan = self.plan(runs, estimate)
        if sizes:
            self.display.on_sizes(sizes)
        self.display.on_plan(sweep_plan)
        if dry_run:
            return SweepResult(sweep_plan, runs=self._records(runs), sizes=sizes)
        jobs = self.jobs(sweep_plan.selected)
        outcomes = self.train_jobs(jobs)
        return SweepResult(sweep_plan, outcomes, len(jobs) - len(outcomes), self._records(runs), sizes)

    def train(self, config: RunConfig, label: str, force: bool = False, extend: bool = False) -> Run:
        """Train a run in this process, and return its record; a run with a result is only looked up.

        Args:
            force: delete the run's record and train it again.
            extend: begin with the training state that a shorter run of the same settings has kept, if there is one.

        Raises:
            OrthobenchError: the run cannot start, or its results cannot be stored.
            Stopped: the user stopped the run.
        """
        store, key = self.open_store, config.spec.key
        if force and (existing_run := store.find(key)):
            checkpoints = checkpoints_at(self.checkpoints, key)
            with lock(store, checkpoints):
                weights = store.weights([existing_run.id])
                store.delete(existing_run.id)
                checkpoints.clear()
                remove_weights(self.database, key, weights, self._weights_place)
        if extend and store.find(key) is None:
            checkpoints = checkpoints_at(self.checkpoints, key)
            with lock(store, checkpoints):
                shorter = begin_longer(config, store, self.database, checkpoints, self._weights_place)
            if shorter is None:
                why = why_not_longer(config) or (
                    "no shorter run of these settings has kept its training state with --keep-weights last"
                )
                self.display.print_line(f"run {key} starts at the beginning: {why}")
            else:
                self.display.print_line(f"run {key} continues run {shorter.key} from epoch {shorter.epochs:g}")
        job = self.job(config, label)
        with (
            stop_on_signals(self.stop),
            self.display.open_jobs(1, True) as display,
            self._sinks(display)(job) as sink,
        ):
            try:
                return train_job(job, sink, self.stop, store)
            except Interrupted:
                raise Stopped from None

    def jobs(
        self, planned: Sequence[PlannedRun], label: Callable[[PlannedRun], str] = lambda run: run.label
    ) -> list[Job]:
        """Return numbered jobs for pending runs."""
        pending = [run for run in planned if run.is_pending]
        return [
            self.job(run.config, f"[{number}/{len(pending)}] {label(run)} seed {run.config.spec.seed}")
            for number, run in enumerate(pending, 1)
        ]

    def job(self, config: RunConfig, label: str) -> Job:
        """Return a run as another process can train it."""
        options = replace(
            self.options,
            device="cuda" if self.device.type == "cuda" else "cpu",
            data_folder=data_folder().absolute(),
            tags=self._tags(config),
            log_to=(),  # the session sends the events
            checkpoints=self._absolute_checkpoints,
        )
        database = self.database if "://" in self.database else str(Path(self.database).absolute())
        return Job(config.spec, label, database, options, config.plugin_files, preset=config.preset, config=config)

    def train_jobs(self, jobs: Sequence[Job], at_once: int | None = None) -> list[Outcome]:
        """Train jobs; a failing job does not end the others. Once the budget is spent, no further job starts.

        Args:
            at_once: number of jobs at the same time; None for the options' number.

        Raises:
            UsageError: none of the jobs could start.
            Stopped: the user stopped the session.
        """
        with stop_on_signals(self.stop):
            outcomes = list(self.outcomes(jobs, at_once))
        not_started = len(jobs) - len(outcomes)
        interrupted = any(outcome.ending == Ending.INTERRUPTED for outcome in outcomes)
        if (interrupted or not_started) and (self.stop() or not not_started):  # else the budget is spent
            raise Stopped
        if not_started:
            self.display.on_budget_spent(not_started)
        refused = [outcome for outcome in outcomes if outcome.ending == Ending.REFUSED]
        if jobs and len(refused) == len(jobs):
            raise UsageError(refused[0].cause)
        return outcomes

    def outcomes(self, jobs: Sequence[Job], at_once: int | None = None) -> Iterator[Outcome]:
        """Yield the outcomes of jobs as they end."""
        in_process = self.cluster is None and self.options.jobs == 0
        with self.display.open_jobs(len(jobs), in_process) as display, self.open_store.waiting(self.stop):
            executor = self._executor(display, at_once)
            for outcome in executor.run(jobs, lambda: not self.is_over_budget()):
                if self.logs is not None and outcome.ending not in (Ending.BUSY, Ending.REFUSED):
                    self.logs.settle(outcome.job.spec.key)
                display.on_outcome(outcome)
                yield outcome

    def is_over_budget(self) -> bool:
        """Return whether the budget is spent, after which no run starts."""
        return self.budget is not None and self.budget.is_spent()

    def _executor(self, display: JobsDisplay, at_once: int | None) -> Executor:
        store, options, open_sink = self.open_store, self.options, self._sinks(display)
        if isinstance(self.cluster, SlurmCluster):
            return SlurmExecutor(self.cluster, store, self.seconds, open_sink, self.stop, display.print_line)
        if self.cluster is not None:
            return RayExecutor(self.cluster, store, open_sink, self.stop, display.print_line)
        if options.jobs == 0:
            return SerialExecutor(open_sink, self.stop, store)
        cores = torch.get_num_threads()
        slots = worker_slots(self.device, at_once or options.jobs, options.gpu_share, cores)
        return ProcessExecutor(store, slots, cores, open_sink, self.stop, display.print_line)

    def _sinks(self, display: JobsDisplay) -> SinkFactory:
        """Return what opens the sink of a job: the display's, and the destinations of the option `log_to`."""
        logs = self.logs
        if logs is None:
            return display.open_sink

        @contextmanager
        def open_both(job: Job) -> Iterator[EventSink]:
            with display.open_sink(job) as shown:
                yield Tee(shown, logs.sink(job.spec.key))

        return open_both

    def _tags(self, config: RunConfig) -> tuple[str, ...]:
        """Return the tags of a run: the options', and its own."""
        return tuple(dict.fromkeys((*self.options.tags, *config.tags)))

    def _tag(self, configs: Sequence[RunConfig]) -> None:
        """Tag the runs that the database has already."""
        by_tags: dict[tuple[str, ...], list[str]] = {}
        for config in configs:
            by_tags.setdefault(self._tags(config), []).append(config.spec.key)
        for tags, keys in by_tags.items():
            self.open_store.tag(keys, tags)

    @property
    def _absolute_checkpoints(self) -> str | None:
        """The folder or URL of a server's checkpoints, as every process finds it; None beside a database file."""
        if sqlite_file(self.database) is not None:
            return None
        return self.checkpoints if isinstance(self.checkpoints, str) else str(self.checkpoints.absolute())

    @property
    def _weights_place(self) -> str:
        """The folder or URL in which this session keeps weights."""
        return weights_folder(self.database, self.options.weights, self.checkpoints).root

    def _records(self, runs: Sequence[SweepRun]) -> list[Run]:
        return self.store.runs(keys=[config.spec.key for config, _ in runs]) if self.store else []

    def _estimates(self, pending: Sequence[PlannedRun]) -> dict[str, Estimate]:
        """Estimate pending runs, by key."""
        threads = max(1, torch.get_num_threads() // max(1, min(self.at_once, len(pending))))

        def profile(run: PlannedRun) -> RunProfile:
            self.display.on_profile(run)
            return profile_job(replace(self.job(run.config, run.label), threads=threads))

        can_profile = self.options.profile and (self.device.type == "cpu" or torch.cuda.is_available())
        profiler = profile if can_profile else None
        is_on_cluster = self.cluster is not None
        estimator = Estimator(self.store, self.device, profiler, self.options.keep_weights, is_on_cluster)
        return {run.key: estimator.of(run) for run in pending}
