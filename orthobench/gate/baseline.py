"""The baseline: a TOML file by the authors (runs, settings, limits) and a JSON file by `check --update` (values).

checks/baseline.toml, with comments:

    [task.adding]                    # shared by all runs on a task
    preset = "quick"
    seeds = [0, 1, 2, 3, 4]
    settings = { hidden_size = 32 }

    [[run]]
    task = "adding"
    model = "lstm"
    settings = { learning_rate = 1e-2 }

    [run.metrics.mse]                # optional: by default the task's main metric
    direction = "min"
    allowed_loss = 0.01              # optional: by default three standard deviations of the measured values

With `built_in = true` at its top the file also has a run of each built-in model and an exact run of each built-in task,
with what their classes say (`Model.learns` and `Task.exact`). A `[[run]]` of the same name replaces one of these.

checks/baseline.measured.json: values by seed, the settings that the baseline gave to each run, the speed of a step, and
each update's reason and environment.
"""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from orthobench.analysis.selection import possible_values
from orthobench.errors import UsageError, unknown
from orthobench.metric import Goal
from orthobench.options.arguments import Preset
from orthobench.plugins import Catalog
from orthobench.settings import read_toml
from orthobench.settings.filters import narrow, read_conditions
from orthobench.spec.resolve import RunSpec
from orthobench.system.files import write_text

Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]
RunSettings = dict[str, str | int | float | bool]
DEVIATIONS = 3
"""The loss that passes by default, in standard deviations of the baseline's values. With twenty seeds in a baseline and
eight in a check, unchanged code then passes 999 of 1000 checks; docs/check.md has the shares for other numbers."""
EXACT = {"exact": True, "preset": "quick", "seeds": (11,), "tolerance": 1e-3}
"""What the exact runs of the built-in tasks have in common."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Metric(_Record):
    """How to judge a metric."""

    direction: Goal = Field(description="better direction")
    take: Literal["final", "best"] = Field("final", description="the last test of a run, or its best one")
    allowed_loss: float | None = Field(None, ge=0, description="in the metric's unit; default: three deviations")


class MetricBaseline(Metric):
    """How to judge a metric, and its measured values by seed."""

    model_config = ConfigDict(extra="ignore")  # because earlier updates also wrote a `measured_margin`

    values: dict[Seed, float] = {}

    @property
    def margin(self) -> float | None:
        """The largest loss of the mean that passes; None for fewer than two values."""
        if self.allowed_loss is not None:
            return self.allowed_loss
        return DEVIATIONS * statistics.stdev(self.values.values()) if len(self.values) > 1 else None

    def key(self, name: str) -> tuple[str, str]:
        """Return the key of the metric with this name in `SeedResult.values`."""
        return name, "final" if self.take == "final" else self.direction


class SpeedLimit(_Record):
    # 3, because most cells take longer than that where PyTorch runs them instead of their kernel.
    allowed_factor: float = Field(3.0, gt=1, description="how many times the baseline's a training step may take")


class _Shared(_Record):
    """The entries of [task.NAME], which the runs on the task share."""

    preset: Preset = "paper"
    seeds: Seeds = tuple(range(8))
    settings: RunSettings = {}
    exact: bool = Field(False, description="compare each seed's value to the last bit, on one kind of machine")
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="exact runs: largest relative change on another kind of machine; none: undecided"
    )
    metrics: Mapping[str, Metric] = {}
    speed: SpeedLimit = SpeedLimit()

    @field_validator("seeds")
    @classmethod
    def _check_seeds(cls, seeds: tuple[int, ...]) -> tuple[int, ...]:
        if len(set(seeds)) < len(seeds):
            raise ValueError("a seed is given twice")
        return seeds


class _AuthoredRun(_Shared):
    """The entries of a [[run]]."""

    task: str
    model: str
    name: str = Field("", description="task/model unless set")

    @model_validator(mode="before")
    @classmethod
    def _name(cls, values: Any) -> Any:
        return {"name": _run_name(values)} | values if isinstance(values, dict) else values


class CheckedRun(_AuthoredRun):
    """A model on a task: what to run, and the values from the last update."""

    metrics: Mapping[str, MetricBaseline] = {}
    step_ratio: float | None = Field(
        None, gt=0, description="seconds of a training step divided by those of the calibration product"
    )
    condition: str = Field("", description="hash of the task's settings at the last update")
    measured_settings: RunSettings | None = Field(
        None, description="preset and settings of this file at the last update; none: an update before they were kept"
    )

    @property
    def own_settings(self) -> RunSettings:
        """The preset and the settings that the baseline gives to the run."""
        return {"preset": self.preset, **self.settings}

    @property
    def has_values(self) -> bool:
        """Whether an update has measured this run."""
        return any(metric.values for metric in self.metrics.values())

    def stored(self, value: float) -> float:
        """Return a measured value as the baseline stores it: to six digits, and to the last bit in an exact run."""
        return value if self.exact else float(f"{value:.6g}")


class Update(_Record):
    """The provenance of measured values: reason, code and machine."""

    reason: str
    date: str
    commit: str = Field("", description="of the baseline's repository; '+changes' marks uncommitted changes")
    versions: dict[str, str]
    machine: dict[str, str]
    runs: tuple[str, ...]


class _AuthoredFile(_Record):
    built_in: bool = Field(False, strict=True)
    task: dict[str, _Shared] = {}
    run: tuple[_AuthoredRun, ...] = ()


class _MeasuredRun(_Record):
    """What the file of measured values has of a run."""

    condition: str = ""
    settings: RunSettings | None = None
    speed: float | None = Field(None, gt=0)
    metrics: dict[str, MetricBaseline] = {}


class _MeasuredFile(_Record):
    runs: dict[str, _MeasuredRun] = {}
    updates: tuple[Update, ...] = ()


@dataclass(frozen=True)
class Baseline:
    run: tuple[CheckedRun, ...]
    update: tuple[Update, ...]

    def select(self, names: Sequence[str], where: Sequence[str] = ()) -> list[CheckedRun]:
        """Return the runs with these names, or all runs if there are no names, that meet these conditions.

        Raises:
            UsageError: no run has such a name or meets the conditions.
        """
        by_name = {run.name: run for run in self.run}
        for name in names:
            if name not in by_name:
                raise unknown("run", name, by_name)
        named = [run for run in self.run if not names or run.name in names]
        return narrow(named, read_conditions(where), _columns, possible=possible_values)

    def origin(self, run: CheckedRun) -> Update | None:
        """Return the update that measured a run."""
        return next((update for update in reversed(self.update) if run.name in update.runs), None)


def _columns(run: CheckedRun) -> dict[str, Any]:
    """Return the values by which conditions can select a run of a baseline."""
    return run.settings | run.model_dump(include={"name", "task", "model", "preset"})


def condition(spec: RunSpec) -> str:
    """Return the condition as the baseline stores it, where a task file counts by its version, not by its text."""
    return replace(spec, task_version=spec.task_version.partition("+")[0]).condition


def measured_file(file: Path) -> Path:
    """Return the file with the measured values of a baseline."""
    return file.with_suffix(".measured.json")


def read_baseline(file: Path) -> Baseline:
    """Read a baseline with its measured values.

    Raises:
        UsageError: a file cannot be read, or an entry is invalid; the message names the entry.
    """
    if not file.exists():
        raise UsageError(f"there is no baseline {file}: run in a clone of orthobench, or name a baseline of yours")
    content = read_toml(file, f"baseline {file}")
    try:
        authored = _AuthoredFile.model_validate(content)
    except ValidationError as error:
        problems = (_explain(problem, content) for problem in error.errors())
        raise UsageError(f"baseline {file}: {'; '.join(problems)}") from error
    runs = [*authored.run]
    if authored.built_in:
        listed = {run.name for run in runs}
        runs += [run for run in _of_built_in_plugins() if run.name not in listed]
    if not runs:
        raise UsageError(f"baseline {file} has no runs, so nothing would be checked: add a [[run]] with task and model")
    tasks = {run.task for run in runs}
    if unused := sorted(authored.task.keys() - tasks):
        raise unknown(f"task of a table in baseline {file}, on which it has no run:", unused[0], tasks)
    names = [run.name for run in runs]
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"baseline {file}: {', '.join(sorted(repeated))} appears twice: give one of the runs a name")
    measured = _read_measured(measured_file(file))
    joined = tuple(
        _joined(authored.task.get(run.task, _Shared()), run, measured.runs.get(run.name, _MeasuredRun()))
        for run in runs
    )
    for run in joined:
        if run.tolerance is not None and not run.exact:
            raise UsageError(f"baseline {file}: run {run.name}: tolerance needs exact = true; others use allowed_loss")
    return Baseline(joined, measured.updates)


def _of_built_in_plugins() -> Iterator[_AuthoredRun]:
    """Yield a run of each built-in model on what it learns, then an exact run of each built-in task."""
    catalog = Catalog()
    for model in catalog.built_in("model"):
        if learns := catalog.load("model", model).learns:
            yield _AuthoredRun(task=learns.task, model=model, settings=dict(learns.gate))
    for task in catalog.built_in("task"):
        if settings := dict(catalog.load("task", task).exact):
            model = str(settings.pop("model"))
            yield _AuthoredRun(task=task, model=model, name=f"{task}/exact", settings=settings, **EXACT)


def _read_measured(file: Path) -> _MeasuredFile:
    """Return the content of the file of measured values; empty if the file does not exist."""
    try:
        return _MeasuredFile.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return _MeasuredFile()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(
            f"{file} is damaged: restore it, or delete it and measure again with `orthobench check --update`"
        ) from error


def _joined(shared: _Shared, run: _AuthoredRun, measured: _MeasuredRun) -> CheckedRun:
    """Return a run with the entries that the runs on its task share, over which its own take precedence, and values.

    Values of another direction or `take` do not count.
    """
    given = {name: getattr(entries, name) for entries in (shared, run) for name in entries.model_fields_set}
    metrics = {}
    for name, metric in (given.get("metrics") or measured.metrics).items():
        then = measured.metrics.get(name)
        same = then is not None and (then.direction, then.take) == (metric.direction, metric.take)
        metrics[name] = MetricBaseline(**dict(metric) | {"values": then.values if then and same else {}})
    joined = {"settings": shared.settings | run.settings, "metrics": metrics, "step_ratio": measured.speed}
    return CheckedRun(**given | joined, condition=measured.condition, measured_settings=measured.settings)


def _run_name(run: Mapping[str, Any]) -> str:
    return str(run.get("name") or f"{run.get('task')}/{run.get('model')}")


def _explain(problem: Any, content: Mapping[str, Any]) -> str:
    path = list(problem["loc"])
    if path[0] == "run" and len(path) > 1 and isinstance(run := content["run"][path[1]], dict):
        path[:2] = [f"run {_run_name(run)}"]
    place = " ".join(map(str, path))
    if problem["type"] == "extra_forbidden":
        return f"{place} is not a key of a baseline, whose runs name those of model and task in a table settings"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{place}: {message[0].lower()}{message[1:]}"


def write_measured(file: Path, runs: Sequence[CheckedRun], update: Update) -> None:
    """Write the values of these runs to the baseline's file of measured values, atomically.

    The values of other runs do not change. Runs that are no longer in the baseline are removed, and so are updates to
    which no value refers.

    Raises:
        StorageError: the file cannot be written.
    """
    baseline = read_baseline(file)
    replaced = {run.name for run in runs}
    latest = {run.name: run for run in (*baseline.run, *runs)}
    entries = {name: _measured_entries(run) for name, run in latest.items() if run.has_values}
    updates = [
        earlier.model_copy(update={"runs": tuple(n for n in earlier.runs if n in entries and n not in replaced)})
        for earlier in baseline.update
    ]
    records = [record.model_dump() for record in (*(earlier for earlier in updates if earlier.runs), update)]
    text = json.dumps({"runs": entries, "updates": records}, indent=1, ensure_ascii=False)
    # Innermost objects and lists take one line each, so that a diff shows one line per changed metric.
    write_text(measured_file(file), re.sub(r"[{\[][^][{}]*[]}]", _on_one_line, text) + "\n")


def _measured_entries(run: CheckedRun) -> dict[str, Any]:
    entries: dict[str, Any] = {"condition": run.condition}
    if run.measured_settings is not None:
        entries["settings"] = run.measured_settings
    if run.step_ratio is not None:
        entries["speed"] = run.step_ratio
    metrics = {}
    for name, metric in run.metrics.items():
        values = {str(seed): value for seed, value in sorted(metric.values.items())}
        metrics[name] = {"direction": metric.direction, "take": metric.take, "values": values}
    return entries | {"metrics": metrics}


def _on_one_line(match: re.Match[str]) -> str:
    return re.sub(r"(?<=,)\n *", " ", re.sub(r"(?<!,)\n *", "", match[0]))
