"""The baseline: a TOML file by the authors (runs, settings, tolerances) and a JSON file by `check --update` (values).

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
    allowed_loss = 0.01              # optional: by default measured

With `built_in = true` at its top the file also has a run of each built-in model and an exact run of each built-in task,
with what their classes say (`Model.learns` and `Task.exact`). A `[[run]]` of the same name replaces one of these.

checks/baseline.measured.json: values by seed, the settings that the baseline gave to each run, the speed of a step, and
each update's reason and environment.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orthobench.errors import UsageError, unknown
from orthobench.metric import Goal
from orthobench.options.arguments import Preset
from orthobench.plugins import Catalog
from orthobench.settings import Settings, read_toml
from orthobench.spec.resolve import RunSpec
from orthobench.system import files

Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]
EXACT = {"exact": True, "preset": "quick", "seeds": [11], "tolerance": 1e-3}
"""What the exact runs of the built-in tasks have in common."""


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MetricBaseline(_Record):
    """How to judge a metric, and its measured values by seed."""

    direction: Goal = Field(description="better direction")
    take: Literal["final", "best"] = Field("final", description="the last test of a run, or its best one")
    allowed_loss: float | None = Field(None, ge=0, description="in the metric's unit; default: the measured margin")
    measured_margin: float | None = Field(None, ge=0, description="the loss that an update measured as allowable")
    values: dict[Seed, float] = {}

    @property
    def margin(self) -> float | None:
        """The largest loss that passes: the authors' allowed loss if set, else the measured margin."""
        return self.measured_margin if self.allowed_loss is None else self.allowed_loss

    def key(self, name: str) -> tuple[str, str]:
        """Return the key of the metric with this name in `SeedResult.values`."""
        return name, "final" if self.take == "final" else self.direction


class SpeedBaseline(_Record):
    ratio: float = Field(gt=0, description="seconds of a training step divided by those of the calibration product")
    allowed_factor: float = Field(3.0, gt=1)


class CheckedRun(_Record):
    """A model on a task: what to run, and the values from the last update."""

    task: str
    model: str
    name: str = Field("", description="task/model unless set")
    preset: Preset = "paper"
    seeds: Seeds = tuple(range(8))
    settings: dict[str, str | int | float | bool] = {}
    exact: bool = Field(False, description="compare each seed's value to the last bit, on one kind of machine")
    tolerance: float | None = Field(
        None, gt=0, lt=1, description="exact runs: largest relative change on another kind of machine; none: undecided"
    )
    metrics: dict[str, MetricBaseline] = {}
    speed: SpeedBaseline | None = None
    condition: str = Field("", description="hash of the task's settings at the last update")
    measured_settings: dict[str, str | int | float | bool] | None = Field(
        None, description="preset and settings of this file at the last update; none: an update before they were kept"
    )

    @model_validator(mode="before")
    @classmethod
    def _name(cls, values: Any) -> Any:
        return {"name": run_name(values)} | values if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _check_seeds(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("a seed is given twice")
        if self.tolerance is not None and not self.exact:
            raise ValueError("tolerance needs exact = true; runs over several seeds use allowed_loss")
        return self

    @property
    def own_settings(self) -> dict[str, str | int | float | bool]:
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


class _Tables(BaseModel):
    """The tables among the entries of a run, which are joined with shared and measured ones before all is checked."""

    settings: dict[str, Any] = {}
    metrics: dict[str, dict[str, Any]] = {}
    speed: dict[str, Any] = {}


class _MeasuredRun(BaseModel):
    """What the file of measured values has of a run."""

    condition: str = ""
    settings: dict[str, str | int | float | bool] | None = None
    metrics: dict[str, dict[str, Any]] = {}
    speed: float | None = None


class _MeasuredFile(BaseModel):
    runs: dict[str, _MeasuredRun]
    updates: list[Any]


class Baseline(_Record):
    run: tuple[CheckedRun, ...]
    update: tuple[Update, ...] = ()

    def select(self, names: Sequence[str]) -> list[CheckedRun]:
        """Return the runs with these names, or all runs if there are no names.

        Raises:
            UsageError: no run has such a name.
        """
        by_name = {run.name: run for run in self.run}
        for name in names:
            if name not in by_name:
                raise unknown("run", name, by_name)
        return [run for run in self.run if not names or run.name in names]

    def origin(self, run: CheckedRun) -> Update | None:
        """Return the update that measured a run."""
        return next((update for update in reversed(self.update) if run.name in update.runs), None)


def condition(spec: RunSpec) -> str:
    """Return the condition as the baseline stores it, where a task file counts by its version, not by its text."""
    return replace(spec, task_version=spec.task_version.partition("+")[0]).condition


def run_name(run: Mapping[str, Any]) -> str:
    """Return the name of a run of the baseline file."""
    return str(run.get("name") or f"{run.get('task')}/{run.get('model')}")


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
    shared = content.pop("task", {})
    runs = content.get("run", [])
    if not isinstance(shared, dict) or not isinstance(runs, list):
        raise UsageError(f"baseline {file}: write [task.NAME] for shared entries and [[run]] for each run")
    for where, entries in (*((f"task.{name}", each) for name, each in shared.items()), *(("run", run) for run in runs)):
        try:
            _Tables.model_validate(entries)
        except ValidationError as error:
            path = ".".join(map(str, (where, *error.errors()[0]["loc"])))
            raise UsageError(f"baseline {file}: {path} should be a table; see docs/check.md") from error
    built_in = content.pop("built_in", False)
    if not isinstance(built_in, bool):
        raise UsageError(f"baseline {file}: built_in={built_in} should be true or false")
    if built_in:
        listed = {run_name(run) for run in runs}
        runs += [run for run in _of_built_in_plugins() if run_name(run) not in listed]
    if not runs and not content.keys() - {"run"}:
        raise UsageError(f"baseline {file} has no runs, so nothing would be checked: add a [[run]] with task and model")
    tasks = {str(run.get("task")) for run in runs}
    if unused := sorted(shared.keys() - tasks):
        raise unknown(f"task of a table in baseline {file}, on which it has no run:", unused[0], tasks)
    measured = _read_measured(measured_file(file))
    joined = [_with_shared(shared, run) for run in runs]
    for run in joined:
        _refuse_values(file, run)
    names = [run_name(run) for run in joined]
    content["run"] = [
        _with_measured(run, measured.runs.get(name, _MeasuredRun())) for run, name in zip(joined, names, strict=True)
    ]
    content["update"] = measured.updates
    try:
        baseline = Baseline.model_validate(content)
    except ValidationError as error:
        # Each once, because the entries of a task's table are entries of all its runs.
        problems = dict.fromkeys(_explain(problem, runs) for problem in error.errors())
        raise UsageError(f"baseline {file}: {'; '.join(problems)}") from error
    if repeated := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"baseline {file}: {', '.join(sorted(repeated))} appears twice: give one of the runs a name")
    return baseline


def _of_built_in_plugins() -> Iterator[dict[str, Any]]:
    """Yield a run of each built-in model on what it learns, then an exact run of each built-in task."""
    catalog = Catalog()
    for model in catalog.built_in("model"):
        if learns := catalog.load("model", model).learns:
            yield {"task": learns.task, "model": model, "settings": dict(learns.gate)}
    for task in catalog.built_in("task"):
        if exact := dict(catalog.load("task", task).exact):
            run = {"task": task, "model": exact.pop("model"), "settings": exact}
            yield run | {"name": f"{task}/exact"} | EXACT


def _read_measured(file: Path) -> _MeasuredFile:
    """Return the content of the file of measured values; empty if the file does not exist."""
    try:
        return _MeasuredFile.model_validate_json(file.read_bytes())
    except FileNotFoundError:
        return _MeasuredFile(runs={}, updates=[])
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from error
    except ValidationError as error:
        raise UsageError(
            f"{file} is damaged: restore it, or delete it and measure again with `orthobench check --update`"
        ) from error


def _refuse_values(file: Path, run: Mapping[str, Any]) -> None:
    """Refuse measured values in the authors' file.

    Raises:
        UsageError: a run has measured entries.
    """
    entries = [("condition", run), ("measured_settings", run), ("ratio", run.get("speed", {}))]
    entries += [(word, table) for table in run.get("metrics", {}).values() for word in ("values", "measured_margin")]
    if words := [word for word, table in entries if word in table]:
        raise UsageError(
            f"baseline {file}: run {run_name(run)} has {words[0]}: remove them; "
            f"`orthobench check --update` writes them into {measured_file(file).name}"
        )


def _with_shared(shared: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    """Return a run with the entries that the runs on its task share; its own entries take precedence."""
    common = shared.get(str(run.get("task")), {})
    return {**common, **run, "settings": {**common.get("settings", {}), **run.get("settings", {})}}


def _with_measured(run: Mapping[str, Any], measured: _MeasuredRun) -> dict[str, Any]:
    """Return a run with its measured entries, without values for another direction or `take`."""
    merged = {
        "condition": measured.condition,
        "measured_settings": measured.settings,
        "metrics": measured.metrics,
        **run,
    }
    if run.get("metrics"):
        merged["metrics"] = _merged(run["metrics"], measured.metrics)
    if measured.speed is not None:
        merged["speed"] = {"ratio": measured.speed} | run.get("speed", {})
    else:
        merged.pop("speed", None)
    return merged


def _merged(authored: Mapping[str, Any], measured: Mapping[str, Any]) -> dict[str, Any]:
    metrics = {}
    for name, metric in authored.items():
        entries = measured.get(name, {})
        same = (metric.get("direction"), metric.get("take", "final")) == (entries.get("direction"), entries.get("take"))
        metrics[name] = {**(entries if same else {}), **metric}
    return metrics


def _explain(problem: Any, runs: Sequence[Mapping[str, Any]]) -> str:
    path = list(problem["loc"])
    if path[:1] == ["run"] and len(path) > 1:
        run = runs[path[1]]
        path[:2] = [f"run {run.get('task')}/{run.get('model')}"]
        if problem["type"] == "extra_forbidden" and len(path) == 2:
            return _explain_key(path[1], problem["input"], run)
    if problem["type"] == "extra_forbidden":
        return f"{' '.join(map(str, path))} is not a key of a baseline: see docs/check.md"
    message = problem["msg"].removeprefix("Value error, ")
    return f"{' '.join(map(str, path))}: {message[0].lower()}{message[1:]}"


def _explain_key(key: str, value: Any, run: Mapping[str, Any]) -> str:
    """Say in which table a key stands that no run has, and where to write it if it is a setting."""
    task = str(run.get("task"))
    shared = f"[task.{task}]" if re.fullmatch(r"[\w-]+", task, re.ASCII) else f"[task.{json.dumps(task)}]"
    table = f"[[run]] {run_name(run)}" if key in run else shared
    if key not in _setting_names(task, str(run.get("model"))):
        return f"{table} has {key}, which is not a key of a baseline: see docs/check.md"
    written = f"settings = {{ {key} = {json.dumps(value, default=str)} }}"  # str, because TOML has dates as well
    return f"{table} has {key}, which is a setting: write it in {written}"


def _setting_names(task: str, model: str) -> set[str]:
    """Return the names of the settings of a run, without those of a task or model that only a plugin's file defines."""
    from orthobench.model import ModelSettings  # here, because it loads torch
    from orthobench.task import TrainingSettings  # as above

    catalog = Catalog()
    groups: list[type[Settings]] = [TrainingSettings, ModelSettings]
    with suppress(UsageError):
        groups.append(catalog.load("task", catalog.named_task(task)).Settings)
    with suppress(UsageError):
        groups.append(catalog.load("model", catalog.named(model)).Settings)
    return {name for group in groups for name in group.model_fields}


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
    if run.speed is not None:
        entries["speed"] = run.speed.ratio
    metrics = {}
    for name, metric in run.metrics.items():
        values = {str(seed): value for seed, value in sorted(metric.values.items())}
        metrics[name] = metric.model_dump(exclude={"allowed_loss"}, exclude_none=True) | {"values": values}
    return entries | {"metrics": metrics}


def _on_one_line(match: re.Match[str]) -> str:
    return re.sub(r"(?<=,)\n *", " ", re.sub(r"(?<!,)\n *", "", match[0]))


def check_folder(file: Path) -> None:
    """Check that a file can be written, before any training.

    Raises:
        UsageError: the folder does not exist or is not writable.
    """
    # The folder counts and not the file, because a new file takes the place of the old one.
    if not os.access(file.parent, os.W_OK) or file.is_dir():
        raise UsageError(f"{file} cannot be written: name a file in a folder that exists and is writable")


def write_text(file: Path, text: str) -> None:
    """Write or replace a file atomically.

    Raises:
        StorageError: the file cannot be written.
    """
    try:
        files.write_bytes(file, text.encode())
    except OSError as error:
        raise files.storage_error(file, error) from error
