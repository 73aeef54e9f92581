"""What a sweep consists of, and how much of it is there."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orthobench.errors import UsageError
from orthobench.plugins import Catalog
from orthobench.settings import Settings
from orthobench.spec import Preset, RunConfig, resolve
from orthobench.store import Run, Status, Store
from orthobench.sweep.grid import Axis, combinations
from orthobench.training.checkpoint import checkpoints_at
from orthobench.training.lifecycle import is_settled
from orthobench.training.locks import is_locked
from orthobench.training.trainer import OnDivergence


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: the grid's values that single it out, and its record if it was begun before."""

    config: RunConfig
    chosen: dict[str, str]
    run: Run | None
    busy: bool
    reopened: bool = False
    """It has diverged, and is to go on in spite of it."""
    older: Run | None = None
    """Where it is missing: the result of a run that was the same but for older versions of its plugins."""

    @property
    def state(self) -> str:
        """missing, stale (missing, but for an older result), running (by another process now), or where it was left."""
        if self.busy:
            return "running"
        if self.run is None:
            return "stale" if self.older else "missing"
        return Status.INTERRUPTED if self.run.status == Status.RUNNING else self.run.status

    @property
    def change(self) -> str:
        """What came between a stale run and its older result."""
        if self.older is None:
            return ""
        spec, before = self.config.spec, self.older.spec
        changed = [
            f"{name} {before[which]} -> {now}"
            for name, which, now in (
                (spec.task, "task_version", spec.task_version),
                (spec.model, "model_version", spec.model_version),
            )
            if before[which] != now
        ]
        return "version of " + ", ".join(changed) if changed else "settings that came or went"

    @property
    def is_wanted(self) -> bool:
        """Whether the sweep still has to train it."""
        return not self.busy and (self.run is None or self.reopened or not Status(self.run.status).is_final)

    @property
    def label(self) -> str:
        """The model, and the values that single the run out."""
        return self.config.spec.model + "".join(f" {key}={value}" for key, value in self.chosen.items())


def resolve_all(
    catalog: Catalog,
    task: str,
    models: Sequence[str],
    given: Mapping[str, str],
    grid: Sequence[Axis],
    seeds: Sequence[int],
    preset: Preset,
) -> list[tuple[RunConfig, dict[str, str]]]:
    """The runs of a grid, seed by seed, so that a sweep cut short has compared every model.

    Raises:
        UsageError: a name or value does not fit, or two points of the grid are the same run.
    """
    points = combinations(grid)
    if both := given.keys() & points[0].keys():
        raise UsageError(f"{', '.join(sorted(both))} is both set and in the grid: leave one out")
    first = seeds[0]
    variants = [
        (resolve(catalog, task, model, {**given, **chosen}, preset, first), chosen)
        for model in dict.fromkeys(models)
        for chosen in points
    ]
    keys = [config.spec.key for config, _ in variants]
    if len(set(keys)) < len(keys):
        raise UsageError("two points of the grid are the same run: name each value once")
    return [(config.with_seed(seed), chosen) for seed in seeds for config, chosen in variants]


def plan(
    runs: Sequence[tuple[RunConfig, dict[str, str]]],
    store: Store | None,
    checkpoints: Path | str,
    on_divergence: OnDivergence = "stop",
) -> list[PlannedRun]:
    """How far each run is; without a store none was begun."""
    keys = [config.spec.key for config, _ in runs]
    known = {run.key: run for run in store.runs(keys=keys)} if store else {}
    missing = {(one.spec.task, one.spec.model) for one, _ in runs if one.spec.key not in known}
    others = {of: store.runs(task=of[0], model=of[1]) for of in missing} if store else {}
    planned = []
    for config, chosen in runs:
        run, folder = known.get(config.spec.key), checkpoints_at(checkpoints, config.spec.key)
        busy = store is not None and run is not None and is_locked(store, folder)
        reopened = run is not None and run.status == Status.DIVERGED and not is_settled(run, folder, on_divergence)
        older = None if run else _older(config, others.get((config.spec.task, config.spec.model), ()))
        planned.append(PlannedRun(config, chosen, run, busy, reopened, older))
    return planned


def _older(config: RunConfig, others: Iterable[Run]) -> Run | None:
    """The newest result among runs of the same task and model that was this run before its plugins changed.

    Its seed is this run's and neither version is newer. Its settings are the same as well, but for those that there
    were not yet, which have to be at their defaults here, and those that there are no more.
    """
    spec = config.spec
    found = [
        run
        for run in others
        if Status(run.status).is_final
        and run.seed == spec.seed
        and _number(run.spec["task_version"]) <= _number(spec.task_version)
        and _number(run.spec["model_version"]) <= _number(spec.model_version)
        and _were(config.task_settings, run.spec["task_settings"])
        and _were(config.model_settings, run.spec["model_settings"])
        and _were(config.training, run.spec["training"])
    ]
    return found[-1] if found else None


def _number(version: str) -> int:
    """A version's number, without the revision of a plugin file."""
    return int(version.partition("+")[0])


def _were(settings: Settings, recorded: dict[str, Any]) -> bool:
    """Whether settings recorded by an earlier version mean the same as these."""
    kind = type(settings)
    now, before = (kind.neutral() | values for values in (settings.canonical(), recorded))
    shared = now.keys() & before.keys()
    if any(now[name] != before[name] for name in shared):
        return False
    try:
        return shared == now.keys() or kind.read({name: now[name] for name in shared}) == settings
    except UsageError:  # without a setting that was added, the others are nothing
        return False
