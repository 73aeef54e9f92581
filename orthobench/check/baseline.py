"""The baseline file: TOML, written by hand where it says what to run, by `check --update` where it says what came out.

[task.adding]                    # what runs on a task share
preset = "quick"
seeds = [0, 1, 2, 3, 4]
settings = { hidden_size = 32 }

[[run]]
task = "adding"
model = "lstm"
settings = { learning_rate = 1e-2 }

[run.metrics.mse]
direction = "min"
allowed_loss = 0.01
values = { 0 = 0.0123, ... }     # by seed, from here on measured
"""

from __future__ import annotations

import os
import re
import statistics
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from orthobench.check.inference import Direction
from orthobench.errors import UsageError, unknown
from orthobench.spec import Preset, RunConfig, RunSpec
from orthobench.store import atomic

Seed = Annotated[int, Field(ge=0)]
Seeds = Annotated[tuple[Seed, ...], Field(min_length=1)]


class _Record(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class MetricBaseline(_Record):
    direction: Direction = Field(description="which way is better")
    take: Literal["final", "best"] = Field("final", description="of a run's tests the last, or the best")
    allowed_loss: float | None = Field(None, ge=0, description="in the metric's unit; none: measured by the update")
    values: dict[Seed, float] = {}

    def key(self, name: str) -> tuple[str, str]:
        """Where `Measured` has this metric's value."""
        return name, "final" if self.take == "final" else self.direction


class SpeedBaseline(_Record):
    ratio: float = Field(gt=0, description="seconds of a training step over those of the calibration's product")
    allowed_factor: float = Field(3.0, gt=1)


class CheckedRun(_Record):
    """One model on one task: what to run, and what came out when the baseline was written."""

    task: str
    model: str
    name: str = Field("", description="task/model unless given")
    preset: Preset = "paper"
    seeds: Seeds = (0, 1, 2, 3, 4)
    settings: dict[str, str | int | float | bool] = {}
    exact: bool = Field(False, description="every seed's value to the last bit, on one kind of machine")
    metrics: dict[str, MetricBaseline] = {}
    speed: SpeedBaseline | None = None
    condition: str = Field("", description="names the task's settings that the values were measured with")

    @model_validator(mode="before")
    @classmethod
    def _name(cls, values: Any) -> Any:
        return {"name": f"{values.get('task')}/{values.get('model')}"} | values if isinstance(values, dict) else values

    @model_validator(mode="after")
    def _each_seed_once(self) -> Self:
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError("seeds are named twice")
        return self

    @property
    def measured(self) -> bool:
        """Whether there is anything to compare with."""
        return any(metric.values for metric in self.metrics.values())


class Update(_Record):
    """Where the values of these runs come from."""

    reason: str
    date: str
    commit: str = Field("", description="of the repository the baseline is in; with '+changes' if not as committed")
    versions: dict[str, str]
    machine: dict[str, str]
    runs: tuple[str, ...]


class Baseline(_Record):
    run: tuple[CheckedRun, ...]
    update: tuple[Update, ...] = ()

    def select(self, names: Sequence[str]) -> list[CheckedRun]:
        """The runs of these names, or all.

        Raises:
            UsageError: there is no run of a name.
        """
        by_name = {run.name: run for run in self.run}
        for name in names:
            if name not in by_name:
                raise unknown("run", name, by_name)
        return [run for run in self.run if not names or run.name in names]

    def origin(self, run: CheckedRun) -> Update | None:
        """The update that measured a run."""
        return next((update for update in reversed(self.update) if run.name in update.runs), None)


def check_directions(run: CheckedRun, config: RunConfig) -> None:
    """Refuse a direction that contradicts the task's declaration of the metric.

    Raises:
        UsageError: a metric has the other direction.
    """
    for metric in config.task_class.metrics:
        recorded = run.metrics.get(metric.name)
        if recorded is not None and recorded.direction != metric.goal:
            raise UsageError(
                f'run {run.name}: {metric.name} has direction = "{recorded.direction}", but the task {run.task} '
                f'declares the goal "{metric.goal}": correct the baseline'
            )


def condition(spec: RunSpec) -> str:
    """The condition as the baseline keeps it: of a task in a file, its version counts and not the file's text."""
    from dataclasses import replace

    return replace(spec, task_version=spec.task_version.partition("+")[0]).condition


def read_baseline(file: Path) -> Baseline:
    """Read and validate.

    Raises:
        UsageError: the file cannot be read, or something in it does not fit; one line with the place.
    """
    try:
        content = tomllib.loads(file.read_text("utf-8"))
    except OSError as error:
        raise UsageError(f"baseline {file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"baseline {file} is not TOML: {error}") from error
    shared = content.pop("task", {})
    runs = content.get("run", [])
    if not isinstance(shared, dict) or not isinstance(runs, list) or not all(isinstance(run, dict) for run in runs):
        raise UsageError(f"baseline {file}: write [task.NAME] for what runs share and [[run]] for each run")
    content["run"] = [_laid_over(shared, run) for run in runs]
    try:
        baseline = Baseline.model_validate(content)
    except ValidationError as error:
        raise UsageError(f"baseline {file}: " + "; ".join(_explain(one, runs) for one in error.errors())) from error
    names = [run.name for run in baseline.run]
    if twice := {name for name in names if names.count(name) > 1}:
        raise UsageError(f"baseline {file}: {', '.join(sorted(twice))} is there twice: give one of them a name")
    return baseline


def _laid_over(shared: Mapping[str, Any], run: Mapping[str, Any]) -> dict[str, Any]:
    common = shared.get(str(run.get("task")), {})
    return {**common, **run, "settings": {**common.get("settings", {}), **run.get("settings", {})}}


def _explain(problem: Any, runs: Sequence[Mapping[str, Any]]) -> str:
    place = list(problem["loc"])
    if place[:1] == ["run"] and len(place) > 1:
        run = runs[place[1]]
        place[:2] = [f"run {run.get('task')}/{run.get('model')}"]
    message = problem["msg"].removeprefix("Value error, ")
    return f"{' '.join(map(str, place))}: {message[0].lower()}{message[1:]}"


def write_baseline(file: Path, measured: Sequence[CheckedRun], update: Update) -> None:
    """Put what was measured into the file, which else stays as it is with its comments; whole or not at all.

    Updates that no run's values come from any more are dropped.

    Raises:
        UsageError: the file cannot be written.
    """
    import tomlkit

    text, comments = _comments_taken(file.read_text("utf-8"))
    document: Any = tomlkit.parse(text)
    by_name = {run.name: run for run in measured}
    for table in document["run"]:
        run = by_name.get(table.get("name", f"{table['task']}/{table['model']}"))
        if run is None:
            continue
        table["condition"] = run.condition
        if run.speed is not None:
            table["speed"] = _inline(run.speed.model_dump())
        metrics = table.setdefault("metrics", tomlkit.table(is_super_table=True))
        for name, metric in run.metrics.items():
            entry = metrics.setdefault(name, tomlkit.table())
            for key, value in metric.model_dump(exclude={"values"}, exclude_defaults=True).items():
                if entry.get(key) != value:
                    entry[key] = value
            entry["values"] = _inline({str(seed): value for seed, value in sorted(metric.values.items())})
            entry["values"].comment(_summary(list(metric.values.values())))
    earlier = []
    for one in document.get("update", ()):
        one["runs"] = [name for name in one["runs"] if name not in by_name]
        if one["runs"]:
            earlier.append(one)
    document.pop("update", None)
    updates = tomlkit.aot()
    for one in (*earlier, update.model_dump()):
        table = tomlkit.table()
        for key, value in one.items():
            table[key] = _inline(value) if isinstance(value, dict) else value
        table["runs"] = tomlkit.array()
        for name in one["runs"]:
            table["runs"].append(name)
        table["runs"].multiline(True)
        updates.append(table)
    document["update"] = updates
    text = re.sub(r"(?<=[^\n])\n(?=\[\[)", "\n\n", tomlkit.dumps(document))
    write_whole(file, _comments_put_back(text, comments))


MARK = "\ue000"  # of Unicode's private use


def _comments_taken(text: str) -> tuple[str, list[str]]:
    """The text with a mark at each [table] for the comments and blank lines above it, and these.

    They speak of the table, but to TOML are the end of the one before, and what is added to that would stand below.
    """
    taken: list[str] = []

    def take(found: re.Match[str]) -> str:
        taken.append(found[1])
        return f"{found[2]} #{MARK}{len(taken) - 1}"

    return re.sub(r"((?:^[ \t]*(?:#.*)?\n)+)([ \t]*\[.*)", take, text, flags=re.MULTILINE), taken


def _comments_put_back(text: str, taken: Sequence[str]) -> str:
    marked = re.compile(rf"\n*^(.*) #{MARK}(\d+)$", re.MULTILINE)
    return marked.sub(lambda found: f"\n{taken[int(found[2])]}{found[1]}", text).lstrip("\n")


def _inline(values: Mapping[str, Any]) -> Any:
    import tomlkit

    table = tomlkit.inline_table()
    table.update(values)
    return table


def _summary(values: Sequence[float]) -> str:
    spread = f", deviation {statistics.stdev(values):.3g}" if len(values) > 1 else ""
    return f"mean {statistics.fmean(values):.4g}{spread}"


def check_folder(file: Path) -> None:
    """Refuse a file that could not be written, before anything is trained for it.

    Raises:
        UsageError: its folder is not there or not to be written to.
    """
    if not os.access(file.parent, os.W_OK) or file.is_dir():
        raise UsageError(f"{file} cannot be written: name a file in a folder that is there and writable")


def write_whole(file: Path, text: str) -> None:
    """Write or replace a file.

    Raises:
        UsageError: it cannot be written.
    """
    try:
        atomic.write_bytes(file, text.encode())
    except OSError as error:
        raise UsageError(f"{file} cannot be written: {error.strerror}") from error
