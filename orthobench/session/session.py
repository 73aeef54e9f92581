"""A session: a database, together with everything that plans runs and trains them into it.

A session prints nothing. It sends its progress to a `Display`, and returns its results as records.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import torch

from orthobench.analysis.experience import Experience
from orthobench.analysis.shown_table import ShownTable
from orthobench.analysis.variants import briefs, variants
from orthobench.display.display import Display, JobsDisplay
from orthobench.display.progress import default_display
from orthobench.errors import UsageError, counted
from orthobench.executors.job import Ending, Executor, Job, JobOutcome, SinkFactory
from orthobench.executors.processes import ProcessExecutor, worker_slots
from orthobench.executors.profile import profile_job
from orthobench.executors.ray import RayCluster, RayExecutor
from orthobench.executors.serial import SerialExecutor
from orthobench.executors.slurm import SlurmCluster
from orthobench.executors.slurm_executor import SlurmExecutor
from orthobench.executors.slurm_settings import read_settings
from orthobench.isolation import isolated
from orthobench.options.data_folder import data_folder, use_data_folder
from orthobench.options.run_options import RunOptions, SweepOptions
from orthobench.planning.budget import Budget, by_priority
from orthobench.planning.estimate import Estimate, Estimator
from orthobench.planning.match import MatchedSize
from orthobench.planning.sweep_plan import SweepPlan, plan_sweep
from orthobench.planning.sweep_runs import PlannedRun, SweepRun, plan
from orthobench.session.single_run import check_device, check_places, is_new, open_logs, say_before_training
from orthobench.sinks.live import LiveSinks
from orthobench.spec.resolve import RunConfig
from orthobench.store import Run, Status, Store, open_store
from orthobench.store.open import DatabaseNotFoundError, check_writable
from orthobench.store.sqlite import named_or_default
from orthobench.system.location import Location, Place
from orthobench.system.signals import Stopped, StopRequest, stop_on_signals
from orthobench.training.announcements import announced
from orthobench.training.build import check_fit
from orthobench.training.checkpoint import checkpoint_root, checkpoints_at, remove_leftovers
from orthobench.training.device import pick_device
from orthobench.training.events import EventSink, Tee

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, repr=False)
class SweepResult(ShownTable):
    """The result of a sweep.

    Attributes:
        plan: the runs of the sweep and their states before training.
        outcomes: the outcomes of the runs that trained, in the order in which they ended.
        not_started: the number of runs that did not start within the budget.
        runs: the stored records of the sweep's runs after training.
        sizes: the hidden sizes that were chosen for equal parameter counts, each once.
    """

    plan: SweepPlan
    outcomes: list[JobOutcome] = field(default_factory=list)
    not_started: int = 0
    runs: list[Run] = field(default_factory=list)
    sizes: Sequence[MatchedSize] = ()

    @property
    def failed(self) -> list[JobOutcome]:
        """The outcomes of the runs that failed or could not start."""
        return [outcome for outcome in self.outcomes if outcome.ending in (Ending.FAILED, Ending.REFUSED)]

    @property
    def refused(self) -> int:
        """The number of runs that could not start, so that the database has no record of them."""
        return sum(outcome.ending == Ending.REFUSED for outcome in self.outcomes)

    @property
    def left(self) -> list[str]:
        """The keys of the runs that another process is still training."""
        locked = {run.key for run in self.plan.runs if run.is_locked}
        locked |= {outcome.job.spec.key for outcome in self.outcomes if outcome.ending == Ending.BUSY}
        return sorted(locked - {run.key for run in self.runs if Status(run.status).is_final})

    @property
    def table(self) -> pd.DataFrame:
        """The results over seeds, one row for each variant; without any record, the planned runs."""
        import pandas as pd

        if self.runs:
            return pd.DataFrame(briefs(variants(self.runs)))
        planned = pd.DataFrame(self.plan.records(), columns=["run", "task", "model", "seed", "state", "seconds"])
        planned.insert(3, "settings", [" ".join(map("=".join, run.settings.items())) for run in self.plan.runs])
        return planned.dropna(axis="columns", how="all")

    def _words(self) -> str:
        """Count the runs by status."""
        now = {run.key: run.status for run in self.runs}
        states = Counter(str(now.get(run.key, run.state)) for run in self.plan.runs)
        count = len(self.plan.runs)
        return f"{counted(count, 'run')}: {', '.join(f'{count} {state}' for state, count in states.items())}"


@dataclass
class Session:
    """A database, together with everything that plans many runs and trains them into it; see `open_session`.

    Attributes:
        store: the open database; None in a dry run without a database.
        at_once: the number of runs that train at the same time.
        seconds: the estimated time of each run, by key, from the newest plan that has estimated it.
        said: the warnings of its layers so far, each of which is given once.
    """

    store: Store | None
    database: Location
    options: SweepOptions
    device: torch.device
    at_once: int
    display: Display = field(default_factory=Display)
    cluster: RayCluster | SlurmCluster | None = None
    budget: Budget | None = None
    logs: LiveSinks | None = None
    stop: StopRequest = field(init=False)
    seconds: dict[str, float | None] = field(default_factory=dict, init=False)
    said: set[str] = field(default_factory=set, init=False)

    def __post_init__(self) -> None:
        self.stop = StopRequest(self.display.on_stop_request)

    @property
    def open_store(self) -> Store:
        """The database of a session that trains."""
        assert self.store is not None
        return self.store

    @property
    def _is_on_cluster(self) -> bool:
        """Whether the runs train on other machines, to which a dry run does not connect."""
        return self.options.executor != "local"

    @property
    def checkpoints(self) -> Path | Location:
        """The folder or URL of all checkpoints."""
        return checkpoint_root(self.database, self.options.checkpoints)

    def plan(self, runs: Sequence[SweepRun], estimate: bool) -> SweepPlan:
        """Plan a sweep.

        Args:
            estimate: whether to estimate time and memory of the pending runs. With a budget, and for groups of runs on
                SLURM, they are always estimated.
        """
        planned = plan(runs, self.store, self.checkpoints, self.options.on_divergence)
        needs_estimates = estimate or self.budget is not None or isinstance(self.cluster, SlurmCluster)
        estimates = self._estimates(by_priority(planned)) if needs_estimates else None
        self.seconds |= {key: entry.seconds for key, entry in (estimates or {}).items()}
        machine = None if self._is_on_cluster else psutil.virtual_memory().total
        return plan_sweep(planned, estimates, self.budget, self.at_once, machine)

    def sweep(
        self,
        runs: Sequence[SweepRun],
        dry_run: bool = False,
        estimate: bool = False,
        sizes: Sequence[MatchedSize] = (),
        given: Mapping[str, str] | None = None,
    ) -> SweepResult:
        """Plan a sweep and train its pending runs.

        Args:
            dry_run: only plan, and train nothing.
            estimate: as for `plan`.
            sizes: the hidden sizes that were chosen for the runs.
            given: the settings that all runs were given, as text.

        Raises:
            UsageError: none of the runs could start.
            Stopped: the user stopped the session.
        """
        if not dry_run:
            self._tag([config for config, _ in runs])
        sweep_plan = replace(self.plan(runs, estimate), given=given or {})
        if sizes:
            self.display.on_sizes(sizes)
        self.display.on_plan(sweep_plan)
        if dry_run:
            return SweepResult(sweep_plan, runs=self._records(runs), sizes=sizes)
        if self.store is not None and isinstance(self.checkpoints, Path):  # at a URL, each question is a request
            for planned in sweep_plan.runs:
                if planned.state == Status.FINISHED:
                    remove_leftovers(self.store, checkpoints_at(self.checkpoints, planned.key))
        jobs = self.jobs(sweep_plan.selected)
        outcomes = self.train_jobs(jobs)
        return SweepResult(sweep_plan, outcomes, len(jobs) - len(outcomes), self._records(runs), sizes)

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
        """Return a run in the form in which another process can train it."""
        folder = self.options.data_folder if self._is_on_cluster else data_folder()  # other machines have their own
        options = replace(
            self.options,
            # Named here, because `auto` could be another device in the process that trains.
            device="cuda" if self.device.type == "cuda" else "cpu",
            # Absolute, because a job may start in another folder.
            data_folder=folder and folder.absolute(),
            tags=self._tags(config),
            log_to=(),  # the session itself sends the events
            checkpoints=self._absolute_checkpoints,
        )
        database = self.database.absolute()
        return Job(config.spec, label, database, options, config.catalog.files, preset=config.preset, config=config)

    def train_jobs(self, jobs: Sequence[Job], at_once: int | None = None) -> list[JobOutcome]:
        """Train jobs; a job that fails does not stop the others. Once the budget is spent, no further job starts.

        Args:
            at_once: number of jobs at the same time; None for the number in the options.

        Raises:
            UsageError: none of the jobs could start.
            Stopped: the user stopped the session.
        """
        listed = [
            {
                "key": key,
                "task": job.spec.task,
                "model": job.spec.model,
                "label": job.label,
                "seconds": self.seconds.get(key),
            }
            for job in jobs
            for key in [job.spec.key]
        ]
        say_before_training((job.config for job in jobs if job.config is not None), self.said)
        with stop_on_signals(self.stop), announced(self.checkpoints, listed):
            outcomes = list(self.outcomes(jobs, at_once))
        not_started = len(jobs) - len(outcomes)
        interrupted = any(outcome.ending == Ending.INTERRUPTED for outcome in outcomes)
        # If jobs did not start although nobody asked to stop, the budget is spent, which is not an interruption.
        if (interrupted or not_started) and (self.stop() or not not_started):
            raise Stopped
        if not_started:
            self.display.on_budget_spent(not_started)
        refused = {outcome.job.spec.key: outcome.cause for outcome in outcomes if outcome.ending == Ending.REFUSED}
        if jobs and len(refused) == len(jobs):
            raise UsageError(refused[jobs[0].spec.key])  # which one ended first is up to the workers
        return outcomes

    def outcomes(self, jobs: Sequence[Job], at_once: int | None = None) -> Iterator[JobOutcome]:
        """Train jobs, and yield their outcomes as they end."""
        if not jobs:
            return
        in_process = self.cluster is None and self.options.jobs == 0
        with self.display.open_jobs(len(jobs), in_process) as display, self.open_store.waiting(self.stop):
            executor = self._executor(display, at_once)
            for outcome in executor.run(jobs, lambda: not self.is_over_budget()):
                if self.logs is not None and outcome.ending not in (Ending.BUSY, Ending.REFUSED):
                    self.logs.notify(outcome.job.spec.key)
                display.on_outcome(outcome)
                yield outcome

    def is_over_budget(self) -> bool:
        """Return whether the budget is spent; then no further run starts."""
        return self.budget is not None and self.budget.is_spent()

    def _executor(self, display: JobsDisplay, at_once: int | None) -> Executor:
        store, options, open_sink = self.open_store, self.options, self._sinks(display)
        if isinstance(self.cluster, SlurmCluster):
            return SlurmExecutor(self.cluster, store, self.seconds, open_sink, self.stop, display.print_line)
        if self.cluster is not None:
            return RayExecutor(self.cluster, store, open_sink, self.stop, display.print_line)
        if options.jobs == 0:
            return SerialExecutor(store, open_sink, self.stop)
        cores = torch.get_num_threads()
        slots = worker_slots(self.device, at_once or options.jobs, options.gpu_share, cores)
        return ProcessExecutor(store, slots, cores, open_sink, self.stop, display.print_line)

    def _sinks(self, display: JobsDisplay) -> SinkFactory:
        """Return a function that opens the sink of a job: its display, and the destinations of the option `log_to`."""
        logs = self.logs

        @contextmanager
        def open_sink(job: Job) -> Iterator[EventSink]:
            with display.open_sink(job.label) as shown:
                yield shown if logs is None else Tee(shown, logs.sink(job.spec.key))

        return open_sink

    def _tags(self, config: RunConfig) -> tuple[str, ...]:
        """Return the tags of a run: the tags in the options, and its own."""
        return tuple(dict.fromkeys((*self.options.tags, *config.tags)))

    def _tag(self, configs: Sequence[RunConfig]) -> None:
        """Tag the runs that the database already contains."""
        by_tags: dict[tuple[str, ...], list[str]] = {}
        for config in configs:
            by_tags.setdefault(self._tags(config), []).append(config.spec.key)
        for tags, keys in by_tags.items():
            self.open_store.tag(keys, tags)

    @property
    def _absolute_checkpoints(self) -> Location | None:
        """Where every process finds the checkpoints of a server's database; None if they are next to a file."""
        return None if self.database.file is not None else Location.of(self.checkpoints).absolute()

    def _records(self, runs: Sequence[SweepRun]) -> list[Run]:
        return self.store.runs(keys=[config.spec.key for config, _ in runs]) if self.store else []

    def _estimates(self, pending: Sequence[PlannedRun]) -> dict[str, Estimate]:
        """Estimate pending runs, and return the estimates by key."""
        threads = max(1, torch.get_num_threads() // max(1, min(self.at_once, len(pending))))

        def profile(run: PlannedRun) -> Experience:
            self.display.on_profile(run)
            return profile_job(replace(self.job(run.config, run.label), threads=threads))

        can_profile = self.options.profile and (self.device.type == "cpu" or torch.cuda.is_available())
        profiler = profile if can_profile else None
        estimator = Estimator(self.store, self.device, profiler, self.options.keep_weights, self._is_on_cluster)
        return {run.key: estimator.of(run) for run in pending}


@contextmanager
def open_session(
    database: Place | None,
    options: RunOptions,
    display: Display | None = None,
    dry_run: bool = False,
    runs: Iterable[Iterable[RunConfig]] = (),
) -> Iterator[Session]:
    """Open a session: check the options, connect to the cluster, and open the database.

    Args:
        database: a file or an SQLAlchemy URL; a missing file is created. None for the default database.
        dry_run: neither connect to a cluster nor create a database.
        runs: groups of the runs to train. A missing database is created only if this machine can start a run of each
            group. This is not checked for a cluster, whose machines have their own data.

    Raises:
        UsageError: this machine does not support an option, the cluster or database cannot be used, a destination of
            `log_to` is unknown, or no run of a group can start.
    """
    database, options = named_or_default(database, writes=True), SweepOptions.of(options)
    with ExitStack() as stack:
        stack.enter_context(isolated())
        stack.enter_context(use_data_folder(options.data_folder))
        check_places(database, options)
        cluster: RayCluster | SlurmCluster | None = None
        if dry_run and options.executor != "local":
            # How many runs the cluster trains at once is not known, because nothing asks it.
            device, at_once = _device_there(options), options.jobs or 1
            options.check_gpu_share(device.type)
        elif options.executor == "local":
            check_device(options)
            device = pick_device(options.device)
            at_once = 1
            if options.jobs != 0:
                options.check_gpu_share(device.type)
                at_once = len(worker_slots(device, options.jobs, options.gpu_share, torch.get_num_threads()))
        else:
            cluster = (SlurmCluster if options.executor == "slurm" else RayCluster)(database, options)
            stack.callback(cluster.close)
            device, at_once = torch.device(cluster.device), cluster.room()
        store: Store | None = None
        if dry_run:
            with suppress(DatabaseNotFoundError):
                store = stack.enter_context(open_store(database))
        else:
            check_writable(database)
            if cluster is None and is_new(database):
                for group in runs:
                    check_fit(group)
            store = stack.enter_context(open_store(database, create=True))
        budget = None if options.budget is None else Budget(options.budget)
        logs = None
        if options.log_to and not dry_run and store is not None:
            logs = stack.enter_context(open_logs(store, options.log_to))
        yield Session(store, database, options, device, at_once, display or default_display(), cluster, budget, logs)


def _device_there(options: SweepOptions) -> torch.device:
    """Return where the runs train on a cluster, whether or not this machine has such a device.

    Raises:
        UsageError: the options of SLURM are wrong.
    """
    if options.executor == "slurm":
        return torch.device(read_settings(options.slurm).device(options.device))
    return pick_device("auto") if options.device == "auto" else torch.device(options.device)
