"""A session: a database, and the means to plan and train runs into it.

A session prints nothing. Its progress goes to a `Display`, its results are records.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import FrameType

import torch

from orthobench.data import data_folder, use_data_folder
from orthobench.errors import UsageError
from orthobench.execution.budget import Budget, by_priority
from orthobench.execution.display import Display, JobsDisplay
from orthobench.execution.estimate import Estimate, Estimator, profile_job
from orthobench.execution.groups import GroupExecutor, group_size, make_groups
from orthobench.execution.job import Ending, Executor, Job, Outcome, SinkFactory, train_job
from orthobench.execution.options import ExecutionOptions
from orthobench.execution.output import leave_terminal
from orthobench.execution.planner import SweepPlan, make_plan
from orthobench.execution.processes import ProcessExecutor, worker_slots
from orthobench.execution.ray import RayCluster, RayExecutor
from orthobench.execution.serial import SerialExecutor
from orthobench.execution.signals import HANGUP, stop_signals
from orthobench.execution.slurm import SlurmCluster
from orthobench.execution.slurm_executor import SlurmExecutor
from orthobench.execution.slurm_settings import read_settings
from orthobench.planning.match import MatchedSize
from orthobench.planning.plan import PlannedRun, SweepRun, plan
from orthobench.sinks.live import LiveSinks
from orthobench.spec import RunConfig
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.default import named_or_default
from orthobench.store.location import sqlite_file
from orthobench.store.open import DatabaseNotFoundError, check_writable
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at
from orthobench.training.devices import check_backend, pick_device
from orthobench.training.earlier_checkpoints import adopt_checkpoints
from orthobench.training.events import EventSink, Tee
from orthobench.training.fit import check_fit
from orthobench.training.graph import check_graph
from orthobench.training.locks import lock
from orthobench.training.longer import begin_longer
from orthobench.training.loop import Interrupted
from orthobench.training.profiling import RunProfile
from orthobench.weights.folder import remove as remove_weights
from orthobench.weights.folder import weights_folder


class Stopped(KeyboardInterrupt):
    """The user stopped the session. Every run has its checkpoint; the same call resumes them."""


class StopRequest:
    """Whether the user asked to stop. A first Ctrl-C stops runs at their next iteration, a second one at once.

    The first one also stops at once while nothing asks for the request yet, such as while data is loaded.
    A terminal that closes may send SIGHUP more than once, so that signal never stops at once.
    """

    def __init__(self, on_request: Callable[[], None] = lambda: None) -> None:
        self.is_requested = self.is_watched = False
        self.on_request = on_request

    def __call__(self) -> bool:
        self.is_watched = True
        return self.is_requested

    def handle(self, number: int, frame: FrameType | None) -> None:
        """Handle a signal.

        Raises:
            KeyboardInterrupt: this is the second signal, or nothing asks for the request yet.
        """
        if number == HANGUP:
            leave_terminal()
        if not self.is_watched or (self.is_requested and number != HANGUP):
            raise KeyboardInterrupt
        self.is_requested = True
        self.on_request()


@contextmanager
def stop_on_signals(request: StopRequest) -> Iterator[None]:
    """Turn SIGINT, SIGTERM and SIGHUP into a request to stop. Only the main thread can receive signals."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = {number: signal.signal(number, request.handle) for number in stop_signals()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


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
    """A database, and the means to plan and train runs into it. `open_session` makes one.

    Attributes:
        store: None in a dry run without a database.
        at_once: number of runs that train at the same time.
        seconds: the estimated time of each run of the newest plan that has estimates, by key.
    """

    store: Store | None
    database: str = field(repr=False)
    options: ExecutionOptions
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
        sweep_plan = make_plan(planned, estimates, budget, self.at_once)
        if self.options.gpu_batch is None:
            return sweep_plan
        return replace(sweep_plan, groups=make_groups(sweep_plan.selected, lambda run: run.config, self._group_size))

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
            self.open_store.tag([config.spec.key for config, _ in runs], self.options.tags)
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
                remove_weights(self.database, key, weights)
        if extend and store.find(key) is None:
            checkpoints = checkpoints_at(self.checkpoints, key)
            with lock(store, checkpoints):
                shorter = begin_longer(config, store, self.database, checkpoints)
            if shorter is None:
                self.display.print_line(
                    f"run {key} starts at the beginning: no shorter run of these settings has kept its training state "
                    "with --keep-weights last"
                )
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
        options, checkpoints = self.options, self.checkpoints
        return Job(
            config.spec,
            label,
            self.database if "://" in self.database else str(Path(self.database).absolute()),
            checkpoints if isinstance(checkpoints, str) else str(checkpoints.absolute()),
            preset=config.preset,
            plugins=config.plugin_files,
            data_folder=str(data_folder().absolute()),
            device="cuda" if self.device.type == "cuda" else "cpu",
            backend=options.backend,
            cuda_graph=options.cuda_graph,
            checkpoint_every=options.checkpoint_every,
            on_divergence=options.on_divergence,
            tags=tuple(options.tags),
            keep_weights=options.keep_weights,
            weights=options.weights,
            config=config,
        )

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
        in_process = self.cluster is None and self.options.jobs == 0 and self.options.gpu_batch is None
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
        if options.gpu_batch is not None:
            return GroupExecutor(self._group_size, open_sink, self.stop, store)
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

    def _group_size(self, config: RunConfig) -> int:
        assert self.options.gpu_batch is not None
        return group_size(config, self.options.gpu_batch, self.device)

    def _records(self, runs: Sequence[SweepRun]) -> list[Run]:
        return self.store.runs(keys=[config.spec.key for config, _ in runs]) if self.store else []

    def _estimates(self, pending: Sequence[PlannedRun]) -> dict[str, Estimate]:
        """Estimate pending runs, by key."""
        threads = max(1, torch.get_num_threads() // max(1, min(self.at_once, len(pending))))

        def profile(run: PlannedRun) -> RunProfile:
            self.display.on_profile(run)
            return profile_job(
                Job(
                    run.config.spec,
                    run.label,
                    database="",
                    checkpoints="",
                    plugins=run.config.plugin_files,
                    data_folder=str(data_folder().absolute()),
                    device="cuda" if self.device.type == "cuda" else "cpu",
                    backend=self.options.backend,
                    cuda_graph=self.options.cuda_graph,
                    threads=threads,
                )
            )

        can_profile = self.options.profile and (self.device.type == "cpu" or torch.cuda.is_available())
        profiler = profile if can_profile else None
        is_on_cluster = self.cluster is not None
        estimator = Estimator(self.store, self.device, profiler, self.options.keep_weights, is_on_cluster)
        return {run.key: estimator.of(run) for run in pending}


@contextmanager
def open_session(
    database: str | None,
    options: ExecutionOptions,
    display: Display | None = None,
    dry_run: bool = False,
    runs: Iterable[Iterable[RunConfig]] = (),
) -> Iterator[Session]:
    """Open a session: check the options, connect to the cluster, and open the database.

    Args:
        database: a file or an SQLAlchemy URL; a missing file is created. None: the default database.
        dry_run: neither connect to a cluster nor create a database.
        runs: groups of the runs to train. A missing database is created only if this machine can start a run of each
            group; the machines of a cluster have data of their own.

    Raises:
        UsageError: an option does not fit this machine, the cluster or database cannot be used, or no run of a group
            can start.
    """
    database = named_or_default(database, writes=True)
    with ExitStack() as stack:
        stack.enter_context(use_data_folder(options.data_folder))
        checkpoints = checkpoint_root(database, options.checkpoints)
        if options.keep_weights != "none":
            weights_folder(database, options.weights, checkpoints).check()
        cluster = None
        if options.executor != "local" and not dry_run:
            cluster = _connect(database, options)
        device = pick_device(options.device) if cluster is None else torch.device(cluster.device)
        if cluster is None:
            check_backend(options.backend, device)
            check_graph(options.cuda_graph, device)
            if options.gpu_batch is not None and device.type != "cuda":
                raise UsageError(
                    "--gpu-batch is for runs on a GPU (gpu_batch=), and these are on the CPU: leave it out"
                )
            at_once = 1
            if options.jobs != 0 and options.gpu_batch is None:
                at_once = len(worker_slots(device, options.jobs, options.gpu_share, torch.get_num_threads()))
        else:
            at_once = cluster.room()
        store: Store | None = None
        if dry_run:
            with suppress(DatabaseNotFoundError):
                store = stack.enter_context(open_store(database))
        else:
            check_writable(database)
            if cluster is not None:
                stack.enter_context(cluster)
            elif (file := sqlite_file(database)) is not None and not file.exists():
                for group in runs:
                    check_fit(group)
            store = stack.enter_context(open_store(database, create=True))
            adopt_checkpoints(database, store)
        budget = None if options.budget is None else Budget(options.budget)
        logs = None
        if options.log_to and not dry_run and store is not None:
            logs = stack.enter_context(LiveSinks(store, options.destinations()))
        yield Session(store, database, options, device, at_once, display or Display(), cluster, budget, logs)


def _connect(database: str, options: ExecutionOptions) -> RayCluster | SlurmCluster:
    """Connect to the options' cluster.

    Raises:
        UsageError: there is no cluster, or its machines cannot share the database or the checkpoints.
    """
    if options.executor == "slurm":
        return SlurmCluster(
            read_settings(options.slurm),
            database,
            options.checkpoints,
            checkpoint_root(database, options.checkpoints),
            options.device,
            options.threads or 1,
            options.gpu_share,
            options.jobs,
            options.data_folder,
            options.group_minutes or 60.0,
        )
    return RayCluster(
        None if options.executor == "ray" else options.executor,
        database,
        options.checkpoints,
        options.device,
        options.threads or 1,
        options.gpu_share,
        options.jobs,
        options.data_folder,
    )
