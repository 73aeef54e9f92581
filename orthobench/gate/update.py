"""Measured values for the baseline, as `check --update` writes them."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orthobench import environment
from orthobench.errors import UsageError
from orthobench.gate.baseline import CheckedRun, MetricBaseline, SpeedBaseline, Update, condition, measured_file
from orthobench.gate.inference import FEWEST, measured_margin
from orthobench.gate.results import SeedResult, machine_kind
from orthobench.spec import RunConfig


class MissingValueError(Exception):
    """A seed of a run has no value of a metric."""


def check_seeds(runs: Sequence[CheckedRun]) -> None:
    """Check that each run has enough seeds for a spread.

    Raises:
        UsageError: a run has too few.
    """
    for run in runs:
        if not run.exact and len(run.seeds) < FEWEST:
            raise UsageError(f"run {run.name}: a baseline needs {FEWEST} seeds or more, better 5; or set exact = true")


def with_new_values(run: CheckedRun, config: RunConfig, results: Mapping[int, SeedResult]) -> CheckedRun:
    """Return the run with the values of these results.

    A run without metrics gets the task's main metric. A metric without an allowed loss gets a measured margin.

    Raises:
        MissingValueError: a seed has no value of a metric.
    """
    task = config.task_class
    metrics = {}
    main = task.main_metric()
    for name, metric in (run.metrics or {main.name: MetricBaseline(direction=main.goal)}).items():
        values = {}
        for seed, result in results.items():
            if metric.key(name) not in result.values:
                why = "diverged" if result.diverged else result.missing or f"the task logs no metric '{name}'"
                raise MissingValueError(f"run {run.name} seed {seed}: {why}")
            value = result.values[metric.key(name)]
            values[seed] = value if run.exact else float(f"{value:.6g}")
        changes: dict[str, Any] = {"values": values}
        if metric.allowed_loss is None and not run.exact:
            margin = measured_margin(list(values.values()), len(run.seeds), metric.direction)
            changes["measured_margin"] = float(f"{margin:.2g}")
        metrics[name] = metric.model_copy(update=changes)
    ratios = [result.speed for result in results.values() if result.speed is not None]
    speed = run.speed
    if ratios:
        ratio = float(f"{statistics.median(ratios):.3g}")
        speed = speed.model_copy(update={"ratio": ratio}) if speed else SpeedBaseline(ratio=ratio)
    return run.model_copy(update={"metrics": metrics, "condition": condition(config.spec), "speed": speed})


def vacuous_metrics(run: CheckedRun, config: RunConfig) -> list[str]:
    """Return a line for each metric in which an untrained model would pass."""
    chance = config.task_class.baselines(config.task_settings)
    lines = []
    for name, metric in run.metrics.items():
        sign = 1 if metric.direction == "min" else -1
        last = statistics.fmean(metric.values.values()) + sign * (metric.margin or 0.0)
        if name in chance and sign * last >= sign * chance[name]:
            lines.append(f"{name} may reach {last:.3g}, and a model without memory scores {chance[name]:.3g}")
    return lines


def provenance(file: Path, reason: str, facts: Mapping[str, Any], names: list[str]) -> Update:
    """Return the update record of values measured now.

    Args:
        file: the baseline; its own uncommitted changes do not count as changes of the code.
        facts: the facts of this environment.
    """
    folder = file.resolve().parent
    commit = environment.git(folder, "rev-parse", "HEAD") or ""
    own = environment.git(folder, "ls-files", "--full-name", "--", file.name, measured_file(file).name) or ""
    others = [":/", *(f":(top,exclude,literal){name}" for name in own.splitlines())]
    changed = bool(commit and environment.git(folder, "status", "--porcelain", "--untracked-files=no", "--", *others))
    return Update(
        reason=reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit + ("+changes" if changed else ""),
        versions={"python": facts["python"], **facts["packages"]},
        machine={**machine_kind(facts), "cores": str(facts["cores"]), "system": platform.system()},
        runs=tuple(names),
    )
