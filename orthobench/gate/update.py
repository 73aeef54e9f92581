"""Measure the values that `check --update` writes into the baseline."""

from __future__ import annotations

import platform
import statistics
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from orthobench.analysis.inference import limit
from orthobench.errors import UpdateRefusedError
from orthobench.gate.baseline import CheckedRun, MetricBaseline, Update, condition, measured_file
from orthobench.gate.results import TRAINING_LOSS, SeedResult, machine_kind
from orthobench.metric import VALIDATION
from orthobench.spec.resolve import RunConfig
from orthobench.system import environment


def with_new_values(run: CheckedRun, config: RunConfig, results: Mapping[int, SeedResult]) -> CheckedRun:
    """Return the run with the values from these results.

    A run without metrics gets the default ones.

    Raises:
        UpdateRefusedError: a seed has no value of a metric.
    """
    metrics = {}
    for name, metric in (run.metrics or _default_metrics(run, config, results)).items():
        values = {}
        for seed, result in results.items():
            if metric.key(name) not in result.values:
                why = result.missing or result.broken or f"the task logs no metric '{name}'"
                why = "diverged" if result.diverged else why
                raise UpdateRefusedError(f"run {run.name} seed {seed}: {why}")
            values[seed] = run.stored(result.values[metric.key(name)])
        metrics[name] = metric.model_copy(update={"values": values})
    ratios = [result.speed for result in results.values() if result.speed is not None]
    ratio = float(f"{statistics.median(ratios):.3g}") if ratios else run.step_ratio
    measured = {"condition": condition(config.spec), "measured_settings": run.own_settings, "step_ratio": ratio}
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
