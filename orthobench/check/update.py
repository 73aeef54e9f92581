"""What `check --update` puts into the baseline."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orthobench import environment
from orthobench.check.baseline import CheckedRun, MetricBaseline, SpeedBaseline, Update, condition
from orthobench.check.inference import FEWEST, measured_margin
from orthobench.check.measured import Measured, kind_of_machine
from orthobench.errors import UsageError
from orthobench.spec import RunConfig


class Unmeasured(Exception):
    """A run gave no value to record."""


def check_seeds(runs: Sequence[CheckedRun]) -> None:
    """Refuse what cannot become a baseline.

    Raises:
        UsageError: there are too few seeds for a spread.
    """
    for run in runs:
        if not run.exact and len(run.seeds) < FEWEST:
            raise UsageError(f"run {run.name}: {FEWEST} seeds or more make a baseline, better 5; or set exact = true")


def remeasured(run: CheckedRun, config: RunConfig, measured: Mapping[int, Measured]) -> CheckedRun:
    """The run with what it gave now. What a person set, directions and allowed losses, is kept.

    Without metrics it is the task's own that is recorded; an allowed loss that is not set is measured.

    Raises:
        Unmeasured: a seed gave no value.
    """
    task = config.task_class
    metrics = {}
    main = task.main_metric()
    for name, metric in (run.metrics or {main.name: MetricBaseline(direction=main.goal)}).items():
        values = {}
        for seed, one in measured.items():
            if metric.key(name) not in one.values:
                why = "diverged" if one.diverged else one.missing or f"the task logs no metric '{name}'"
                raise Unmeasured(f"run {run.name} seed {seed}: {why}")
            value = one.values[metric.key(name)]
            values[seed] = value if run.exact else float(f"{value:.6g}")
        changes: dict[str, Any] = {"values": values}
        if metric.allowed_loss is None and not run.exact:
            margin = measured_margin(list(values.values()), len(run.seeds), metric.direction)
            changes["allowed_loss"] = float(f"{margin:.2g}")
        metrics[name] = metric.model_copy(update=changes)
    ratios = [one.speed for one in measured.values() if one.speed is not None]
    speed = run.speed
    if ratios:
        ratio = float(f"{statistics.median(ratios):.3g}")
        speed = speed.model_copy(update={"ratio": ratio}) if speed else SpeedBaseline(ratio=ratio)
    return run.model_copy(update={"metrics": metrics, "condition": condition(config.spec), "speed": speed})


def toothless(run: CheckedRun, config: RunConfig) -> list[str]:
    """The metrics of a run in which one that has learnt nothing would pass, in words."""
    chance = config.task_class.baselines(config.task_settings)
    found = []
    for name, metric in run.metrics.items():
        sign = 1 if metric.direction == "min" else -1
        last = statistics.fmean(metric.values.values()) + sign * (metric.allowed_loss or 0.0)
        if name in chance and sign * last >= sign * chance[name]:
            found.append(f"{name} may go to {last:.3g}, and {chance[name]:.3g} is what remembering nothing scores")
    return found


def provenance(file: Path, reason: str, facts: Mapping[str, Any], names: list[str]) -> Update:
    """Where values measured now come from; `facts` are those of the environment."""
    folder = file.resolve().parent
    commit = environment.git(folder, "rev-parse", "HEAD") or ""
    own = environment.git(folder, "ls-files", "--full-name", "--", file.name)
    # Whether the baseline itself is as committed does not matter to what it says.
    others = [":/", f":(top,exclude,literal){own}"] if own else [":/"]
    changed = bool(commit and environment.git(folder, "status", "--porcelain", "--untracked-files=no", "--", *others))
    return Update(
        reason=reason,
        date=datetime.now(UTC).date().isoformat(),
        commit=commit + ("+changes" if changed else ""),
        versions={"python": facts["python"], **facts["packages"]},
        machine={**kind_of_machine(facts), "cores": str(facts["cores"]), "system": platform.system()},
        runs=tuple(names),
    )
