"""Check the runs of a baseline: train them, judge their values, and write new ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from orthobench.analysis.inference import Verdict
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.display.display import Display
from orthobench.errors import MissingDataError, UsageError, unknown
from orthobench.executors.job import Ending, Job, JobOutcome
from orthobench.gate import verdict
from orthobench.gate.baseline import CheckedRun, condition, measured_file, read_baseline, write_measured
from orthobench.gate.result_files import as_junit, as_markdown, refuse_files
from orthobench.gate.results import TRAINING_LOSS, SeedResult, calibrated, collect_results
from orthobench.gate.update import code_commit, provenance, vacuous_metrics, with_new_values
from orthobench.gate.verdict import Finding
from orthobench.metric import VALIDATION
from orthobench.options.arguments import Count, Database, File, FileName, Seed, Texts
from orthobench.options.checked import checked
from orthobench.options.run_options import RunOptions, SweepOptions
from orthobench.planning.sweep_runs import SweepRun
from orthobench.plugins import Catalog
from orthobench.session.session import Session, open_session
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Store, open_store
from orthobench.store.open import check_writable
from orthobench.store.sqlite import named_or_default
from orthobench.store.tables import CHECK
from orthobench.system import environment
from orthobench.system.files import check_folder, write_text
from orthobench.system.location import Location, Place
from orthobench.system.signals import Stopped, stop_on_signals
from orthobench.training.device import check_backend, pick_device


@dataclass(frozen=True)
class CheckResult:
    """The result of a check against a baseline.

    Attributes:
        baseline: the file.
        findings: one per metric of each run.
        had_values: whether the baseline had measured values before.
        junit, markdown: the files for `write_files`.
    """

    baseline: Path
    findings: list[Finding]
    had_values: bool
    runs: Sequence[CheckedRun]
    configs: Mapping[str, list[RunConfig]]
    results: Mapping[str, Mapping[int, SeedResult]]
    facts: Mapping[str, Any]
    junit: Path | None = None
    markdown: Path | None = None

    @property
    def exit_code(self) -> int:
        """0 if all is as good or better, 1 if something is worse, 3 if something could not be measured or decided."""
        return verdict.exit_code(self.findings)

    @property
    def summary(self) -> str:
        """The outcome of the check and the counts of its verdicts."""
        counting = [finding.verdict for finding in self.findings if finding.counts]
        counts = ", ".join(f"{counting.count(each)} {each}" for each in Verdict if each in counting)
        outcome = {0: "as good as the baseline", 1: "WORSE than the baseline", 3: "NOT DECIDED"}[self.exit_code]
        return f"{outcome}: {counts or 'nothing was checked'}"

    @property
    def measured(self) -> Path:
        """The file with the measured values of the baseline."""
        return measured_file(self.baseline)

    def record(self) -> dict[str, Any]:
        """Return the findings, their summary and the exit code as JSON values."""
        findings = [asdict(finding) | {"passes": finding.passes} for finding in self.findings]
        return {"exit_code": self.exit_code, "summary": self.summary, "findings": findings}

    def write_files(self) -> None:
        """Write the findings into the files that the check was given, as JUnit XML and as a Markdown table.

        Raises:
            StorageError: a file cannot be written.
        """
        if self.junit is not None:
            write_text(self.junit, as_junit(self.findings))
        if self.markdown is not None:
            write_text(self.markdown, as_markdown(self.summary, self.findings))

    def update_baseline(self, reason: str) -> list[str]:
        """Write the measured values next to the baseline.

        Args:
            reason: why the baseline changes; it is stored in the baseline.

        Returns:
            A warning for each metric that a model which has learnt nothing would pass.

        Raises:
            UpdateRefusedError: a run has no value. The baseline is unchanged.
        """
        runs = [with_new_values(run, self.configs[run.name][0], self.results[run.name]) for run in self.runs]
        write_measured(self.baseline, runs, provenance(self.baseline, reason, self.facts, [run.name for run in runs]))
        return [f"{run.name}: {line}" for run in runs for line in vacuous_metrics(run, self.configs[run.name][0])]


@checked
def check(
    baseline: FileName = "checks/baseline.toml",
    *,
    only: Texts = (),
    where: Texts = (),
    seeds: Count | None = None,
    first_seed: Seed | None = None,
    db: Database | None = None,
    db_only: bool = False,
    for_update: bool = False,
    fail_on_speed: bool = False,
    history: Database | None = None,
    junit: File | None = None,
    markdown: File | None = None,
    options: RunOptions | None = None,
    display: Display | None = None,
) -> CheckResult:
    """Train the runs of a baseline in this process, and compare them with the baseline's values.

    Args:
        only: restrict to these runs, such as "adding/lstm".
        where: restrict to runs that meet these conditions, by name, task, model, preset or a setting, as "n=170,360".
        seeds: number of seeds, overriding the baseline.
        first_seed: the first seed, overriding the baseline.
        db: store the runs in this database, and use the runs that it contains; None for a temporary one.
        db_only: train nothing and only use the runs in the database.
        for_update: also train runs that the baseline cannot judge, for `CheckResult.update_baseline`.
        fail_on_speed: count slower steps as failures.
        history: also store the verdicts, with the commit, in this database; its report plots them over time.
        junit: a file for the result as JUnit XML, which `CheckResult.write_files` writes.
        markdown: a file for the result as a Markdown table.

    Raises:
        UsageError: the baseline is invalid, or a run cannot start.
        Stopped: the user pressed Ctrl-C.
    """
    baseline = Path(baseline)
    refuse_files(junit, markdown)
    if history is not None and db_only:
        raise UsageError("`history` is for a check that trains, because it names the commit of the code: leave it out")
    if history is not None:
        check_writable(location := Location.of(history))
        if location.file is None or location.file.exists():
            with open_store(history, create=True):  # before hours of training, because it may be no database
                pass
    if for_update:
        check_folder(measured_file(baseline))  # before hours of training
    content, had_values = read_baseline(baseline), measured_file(baseline).exists()
    # One run at a time in this process, because each run's speed is divided by that
    # of a product that is timed next to it.
    options = replace(SweepOptions.of(options), jobs=0, keep_weights="none")
    catalog = Catalog(options.plugins)
    selected = [_with_seeds(run, seeds, first_seed) for run in content.select(only, where)]
    configs = _resolve_runs(catalog, selected)
    conditions = {name: condition(configs[name][0].spec) for name in configs}
    refusals = {run.name: finding for run in selected if (finding := verdict.refusal(run, conditions[run.name]))}
    if for_update and (few := [run.name for run in selected if not run.exact and len(run.seeds) < FEWEST_SEEDS]):
        raise UsageError(f"run {few[0]}: a baseline needs {FEWEST_SEEDS} seeds or more, better 20; or set exact = true")
    device = pick_device(options.device)
    check_backend(options.backend, device)
    facts = environment.describe(device)
    # Before the training, because the code on the disk may change in the meantime.
    commit = None if history is None else code_commit(baseline)

    refused: dict[str, str] = {}
    with _check_session(db, db_only, options, display) as (store, session):
        if session is not None:
            if not for_update:
                refusals |= _without_data(selected, configs, device)
            trained = [config for name, own in configs.items() if for_update or name not in refusals for config in own]
            with stop_on_signals(session.stop):
                for outcome in calibrated(store, device, _trained(session, trained)):
                    if outcome.ending == Ending.REFUSED:
                        # Only an update stops here, because a change that breaks a cell is what a check is for.
                        if for_update:
                            raise UsageError(outcome.cause)
                        refused[outcome.job.spec.key] = outcome.cause
        # An update records that this code produced the runs. In a new database this is true without a comparison.
        compares_code = for_update if db_only else db is not None
        seed_results = {
            name: collect_results(store, own, _with_plugins(facts, device, own[:1]) if compares_code else None, refused)
            for name, own in configs.items()
        }
    findings: list[Finding] = []
    for run in selected:
        if run.name in refusals:
            findings.append(refusals[run.name])
        else:
            findings += verdict.judge(run, content.origin(run), seed_results[run.name], fail_on_speed)
    result = CheckResult(baseline, findings, had_values, selected, configs, seed_results, facts, junit, markdown)
    if history is not None:
        with open_store(history, create=True) as store:
            every = _with_plugins(facts, device, [own[0] for own in configs.values()])
            store.add_benchmark(CHECK, result.record() | {"commit": commit}, every)
    return result


def _with_plugins(facts: dict[str, Any], device: torch.device, configs: Sequence[RunConfig]) -> dict[str, Any]:
    """Add the source code of the runs' plugins to the facts of this environment, if any plugin is not built in."""
    sources = {each.origin: each for config in configs for each in config.sources}
    return environment.describe(device, [each.facts() for each in sources.values()]) if sources else facts


def _without_data(
    checked: Sequence[CheckedRun], configs: Mapping[str, list[RunConfig]], device: torch.device
) -> dict[str, Finding]:
    """Return the findings of the runs whose data set is missing, by name."""
    findings = {}
    for run in checked:
        config = configs[run.name][0]
        try:
            config.task_class(config.task_settings, config.spec.seed, device)
        except MissingDataError as error:
            findings[run.name] = verdict.skipped(run, str(error))
    return findings


@contextmanager
def _check_session(
    db: Place | None, db_only: bool, options: SweepOptions, display: Display | None
) -> Iterator[tuple[Store, Session | None]]:
    """Open the database, or a temporary one if none is named, and also a session unless nothing trains."""
    with ExitStack() as cleanup:
        if db_only:
            yield cleanup.enter_context(open_store(named_or_default(db, writes=False))), None
            return
        if db is None:
            db = Path(cleanup.enter_context(TemporaryDirectory(prefix="orthobench-check-")), "check.db")
        session = cleanup.enter_context(open_session(db, options, display))
        yield session.open_store, session


def _trained(session: Session, configs: Sequence[RunConfig]) -> Iterator[JobOutcome]:
    """Train the pending runs lazily, one by one, and yield how each ended.

    Raises:
        UsageError: another process trains a run.
        Stopped: the user stopped the session.
    """
    planned = session.plan([SweepRun(config, {}) for config in configs], estimate=False)
    jobs: list[Job] = session.jobs(planned.runs, lambda run: f"{run.config.spec.task} {run.config.spec.model}")
    ended = 0
    for outcome in session.outcomes(jobs):
        if outcome.ending == Ending.INTERRUPTED:
            raise Stopped
        if outcome.ending == Ending.BUSY:
            raise UsageError(outcome.cause)
        yield outcome
        ended += 1
    if ended < len(jobs):
        raise Stopped


def _with_seeds(run: CheckedRun, count: int | None, first: int | None) -> CheckedRun:
    """Return the run with other seeds; None keeps the number or first seed of the baseline."""
    if count is None and first is None:
        return run
    start = run.seeds[0] if first is None else first
    return run.model_copy(update={"seeds": tuple(range(start, start + (count or len(run.seeds))))})


def _resolve_runs(catalog: Catalog, runs: Sequence[CheckedRun]) -> dict[str, list[RunConfig]]:
    """Return the configuration of each run for each of its seeds, by the run's name.

    Raises:
        UsageError: a setting or a metric of a run is invalid.
    """
    configs = {}
    for run in runs:
        try:
            first = resolve(catalog, run.task, run.model, run.settings, run.preset, run.seeds[0])
            _check_metrics(run, first)
        except UsageError as error:
            raise UsageError(f"run {run.name}: {error}") from error
        configs[run.name] = [first.with_seed(seed) for seed in run.seeds]
    return configs


def _check_metrics(run: CheckedRun, config: RunConfig) -> None:
    """Refuse metrics that the task does not log, and directions that contradict its declaration of a metric.

    A metric with values has been logged once. If it no longer is, this is the verdict on a change, and no wrong usage.

    Raises:
        UsageError: a metric is unknown, or has the opposite direction.
    """
    goals = {metric.name: metric.goal for metric in config.task_class.metrics}
    goals |= {f"{VALIDATION}{name}": goal for name, goal in goals.items()} | {TRAINING_LOSS: "min"}
    for name, metric in run.metrics.items():
        if name in goals and metric.direction != goals[name]:
            raise UsageError(
                f'{name} has direction = "{metric.direction}", but the task {run.task} declares the goal '
                f'"{goals[name]}": correct the baseline'
            )
        if metric.values:
            continue
        if name not in goals:
            sources = config.catalog.find("task", config.spec.task).sources()
            remedy = " (if the task logs it, add it to the task's metrics)" if sources else ""
            raise UsageError(f"{unknown('metric', name, goals)}{remedy}")
