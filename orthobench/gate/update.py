"""Measure the values that `check --update` writes into the baseline."""

from __future__ import annotations

import math
import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orthobench.analysis.inference import limit
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.errors import UsageError
from orthobench.gate.baseline import CheckedRun, MetricBaseline, SpeedBaseline, Update, condition, measured_file
from orthobench.gate.margins import (
    DETECTION,
    DEVIATIONS,
    detectable_loss,
    detection,
    seeds_needed,
    stored_margin,
)
from orthobench.gate.results import TRAINING_LOSS, VALIDATION, SeedResult, machine_kind
from orthobench.spec.resolve import RunConfig
from orthobench.system import environment


class UpdateRefusedError(Exception):
    """A seed has no value of a metric, or a check would not detect a loss."""


def check_seeds(runs: Sequence[CheckedRun]) -> None:
    """Check that each run has enough seeds for a spread.

    Raises:
        UsageError: a run has too few seeds.
    """
    for run in runs:
        if not run.exact and len(run.seeds) < FEWEST_SEEDS:
            needs = f"a baseline needs {FEWEST_SEEDS} seeds or more, better 5"
            raise UsageError(f"run {run.name}: {needs}; or set exact = true")


def with_new_values(run: CheckedRun, config: RunConfig, results: Mapping[int, SeedResult]) -> CheckedRun:
    """Return the run with the values from these results.

    A run without metrics gets the default ones. Each metric gets a measured margin, unless the run is exact.

    Raises:
        UpdateRefusedError: a seed has no value of a metric.
    """
    metrics = {}
    for name, metric in (run.metrics or _default_metrics(run, config, results)).items():
        values = {}
        for seed, result in results.items():
            if metric.key(name) not in result.values:
                why = "diverged" if result.diverged else result.missing or f"the task logs no metric '{name}'"
                raise UpdateRefusedError(f"run {run.name} seed {seed}: {why}")
            values[seed] = run.stored(result.values[metric.key(name)])
        changes: dict[str, Any] = {"values": values}
        if not run.exact:
            changes["measured_margin"] = stored_margin(list(values.values()), len(run.seeds), metric.direction)
        metrics[name] = metric.model_copy(update=changes)
    ratios = [result.speed for result in results.values() if result.speed is not None]
    speed = run.speed
    if ratios:
        ratio = float(f"{statistics.median(ratios):.3g}")
        speed = speed.model_copy(update={"ratio": ratio}) if speed else SpeedBaseline(ratio=ratio)
    measured = {"condition": condition(config.spec), "measured_settings": run.own_settings, "speed": speed}
    return run.model_copy(update={"metrics": metrics, **measured})


def _default_metrics(
    run: CheckedRun, config: RunConfig, results: Mapping[int, SeedResult]
) -> dict[str, MetricBaseline]:
    """Return the task's main metric, or for an exact run all logged errors and losses, including validation and
    training.

    An exact run does not use shares of correct answers, because one changed answer would exceed the tolerance on
    another machine.
    """
    task = config.task_class
    names = [task.main_metric().name]
    if run.exact:
        logged = {name for result in results.values() for name, _ in result.values}
        errors = [metric.name for metric in task.metrics if metric.goal == "min"]
        names = [*errors, *(f"{VALIDATION}{name}" for name in errors), TRAINING_LOSS]
        names = [name for name in names if name in logged]
    goals = {metric.name: metric.goal for metric in task.metrics}
    return {name: MetricBaseline(direction=goals.get(name, "min")) for name in names}


def check_detection(run: CheckedRun) -> list[str]:
    """Return a line with each metric's margin, and the share of checks that detect a loss of one and of DEVIATIONS.

    Raises:
        UpdateRefusedError: a measured margin detects a loss of DEVIATIONS too rarely; the line has the seeds needed.
    """
    if run.exact:
        return []
    lines = []
    for name, metric in run.metrics.items():
        values, n_now = list(metric.values.values()), len(run.seeds)
        allowed = metric.margin or 0.0
        small, large = (detection(values, n_now, allowed, deviations) for deviations in (1.0, DEVIATIONS))
        if metric.allowed_loss is None and large < DETECTION:
            needed = seeds_needed(values, n_now, metric.direction)
            fix = "choose settings whose values differ less between seeds" if needed is None else _fix(run, *needed)
            raise UpdateRefusedError(
                f"run {run.name}: {n_now} seeds detect a loss of {DEVIATIONS:g} standard deviations of {name} in "
                f"{math.floor(100 * large)}% of the checks, less than {DETECTION:.0%}: {fix}"
            )
        if metric.allowed_loss is None and len(set(values)) == 1:
            lines.append(
                f"{name}: nothing may be lost (measured), because all {len(values)} seeds have the value "
                f"{values[0]:.4g}: no check passes in which one seed is worse by a single test sample; "
                "set allowed_loss to accept that"
            )
            continue
        source = "measured" if metric.allowed_loss is None else f"set by hand, {metric.measured_margin:.2g} by the rule"
        lines.append(
            f"{name}: {allowed:.2g} may be lost ({source}); {n_now} seeds detect a loss of 1 standard deviation in "
            f"{small:.0%} of the checks, of {DEVIATIONS:g} in {large:.0%}; a loss of "
            f"{detectable_loss(values, n_now, allowed, metric.direction):.2g} counts as worse in {DETECTION:.0%}"
        )
    return lines


def _fix(run: CheckedRun, measured: int, checked: int) -> str:
    fixes = []
    if checked > len(run.seeds):
        fixes.append(f"give the run {checked} seeds in the baseline file")
    if any(measured > len(metric.values) for metric in run.metrics.values()):
        fixes.append(f"measure {measured} with `orthobench check --update --seeds {measured}`")
    return ", and ".join(fixes)


def vacuous_metrics(run: CheckedRun, config: RunConfig) -> list[str]:
    """Return a line for each metric on which an untrained model would pass."""
    if run.exact:
        return []
    chance = config.task_class.baselines(config.task_settings)
    lines = []
    for name, metric in run.metrics.items():
        sign = 1 if metric.direction == "min" else -1
        last = limit(list(metric.values.values()), metric.direction, metric.margin or 0.0)
        score = chance.get(name.removeprefix(VALIDATION))
        if score is not None and sign * last >= sign * score:
            lines.append(f"{name} may reach {last:.3g}, and a model without memory scores {score:.3g}")
    return lines


def provenance(file: Path, reason: str, facts: Mapping[str, Any], names: list[str]) -> Update:
    """Return the record of an update of this baseline with values measured now.

    Args:
        facts: the facts of this environment.
    """
    return Update(
        reason=reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=code_commit(file),
        versions={"python": facts["python"], **facts["packages"]},
        machine={**machine_kind(facts), "cores": str(facts["cores"]), "system": platform.system()},
        runs=tuple(names),
    )


def code_commit(file: Path) -> str:
    """Return the commit of a baseline's repository, and "+changes" if there are uncommitted ones; "" without a commit.

    Uncommitted changes of the baseline itself do not count as changes of the code.
    """
    folder = file.resolve().parent
    commit = environment.git(folder, "rev-parse", "HEAD") or ""
    own = environment.git(folder, "ls-files", "--full-name", "--", file.name, measured_file(file).name) or ""
    # literal, because a file name may contain the characters of a pattern.
    others = [":/", *(f":(top,exclude,literal){name}" for name in own.splitlines())]
    changed = bool(commit and environment.git(folder, "status", "--porcelain", "--untracked-files=no", "--", *others))
    return commit + ("+changes" if changed else "")
