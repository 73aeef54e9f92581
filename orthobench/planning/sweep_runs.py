"""The runs of a sweep and their states in the database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from orthobench.errors import UsageError
from orthobench.options.arguments import OnDivergence, Preset
from orthobench.planning.grid import GridAxis, combinations
from orthobench.plugins import Catalog
from orthobench.settings import Settings, identity
from orthobench.spec.resolve import RunConfig, resolve
from orthobench.store import Run, Status, Store
from orthobench.system.location import Location
from orthobench.training.checkpoint import checkpoints_at, is_locked
from orthobench.training.settled import is_settled


class SweepRun(NamedTuple):
    """A run of a sweep, and the settings that distinguish it from the others, as text."""

    config: RunConfig
    settings: dict[str, str]


@dataclass(frozen=True)
class PlannedRun:
    """A run of a sweep and its state in the database.

    Attributes:
        settings: the settings that distinguish the run from the others, as text.
        existing_run: the record of the run, if it was started before.
        is_locked: whether another process trains the run now.
        continues: whether the run has diverged and should continue.
        older_run: for a missing run, a result with the same settings and an older version of a plugin.
    """

    config: RunConfig
    settings: dict[str, str]
    existing_run: Run | None
    is_locked: bool
    continues: bool = False
    older_run: Run | None = None

    @property
    def key(self) -> str:
        return self.config.spec.key

    @property
    def state(self) -> str:
        """The status; "missing" without a record, "stale" with only an older result, "running" if it is locked."""
        if self.is_locked:
            return "running"
        if self.existing_run is None:
            return "stale" if self.older_run else "missing"
        status = self.existing_run.status
        # No lock is held, so the process is gone: it could not change the status, because it was killed.
        return Status.INTERRUPTED if status == Status.RUNNING else status

    @property
    def change(self) -> str:
        """What differs between a stale run and its older result; empty for other runs."""
        if self.older_run is None:
            return ""
        spec, before = self.config.spec, self.older_run.spec
        changed = [
            f"{name} {before[field]} -> {version}"
            for name, field, version in (
                (spec.task, "task_version", spec.task_version),
                (spec.model, "model_version", spec.model_version),
            )
            if before[field] != version
        ]
        return "version of " + ", ".join(changed) if changed else "settings added or removed"

    @property
    def is_pending(self) -> bool:
        """Whether the sweep still has to train the run."""
        if self.is_locked:
            return False
        return self.existing_run is None or self.continues or not Status(self.existing_run.status).is_final

    @property
    def label(self) -> str:
        """The model and the distinguishing settings."""
        return self.config.spec.model + "".join(f" {name}={value}" for name, value in self.settings.items())


def resolve_grid(
    catalog: Catalog,
    task: str,
    models: Sequence[str],
    overrides: Mapping[str, str],
    grid: Sequence[GridAxis],
    seeds: Sequence[int],
    preset: Preset,
) -> list[SweepRun]:
    """Return the runs of a grid, seed by seed, so that a sweep that is cut short has already compared all models.

    Raises:
        UsageError: a name or value is invalid, or two points of the grid are the same run.
    """
    points = combinations(grid)
    if both := overrides.keys() & points[0].keys():
        raise UsageError(f"{', '.join(sorted(both))} is both set and in the grid: leave one out")
    names = list(dict.fromkeys(models))
    first = []
    for model in names:
        try:
            first += [
                SweepRun(resolve(catalog, task, model, {**overrides, **point}, preset, seeds[0]), point)
                for point in points
            ]
        except UsageError as error:
            raise UsageError(f"{model}: {error}" if len(names) > 1 else str(error)) from error
    keys = [run.config.spec.key for run in first]
    if len(set(keys)) < len(keys):
        raise UsageError("two points of the grid are the same run: name each value once")
    return with_seeds(first, seeds)


def optimizers(runs: Sequence[SweepRun]) -> str:
    """Say in one line which optimisers train the models of a sweep; "" if all models train with the same ones."""
    by_model: dict[str, list[str]] = {}
    for config, _ in runs:
        if (name := config.spec.model_settings.get("optimizer")) is None:
            continue
        names = by_model.setdefault(config.spec.model, [])
        if name not in names:
            names.append(name)
    if len(set(map(tuple, by_model.values()))) < 2:
        return ""
    trained: dict[str, list[str]] = {}
    for model, names in by_model.items():
        for name in names:
            trained.setdefault(name, []).append(model)
    words = ", ".join(f"{name} ({', '.join(models)})" for name, models in trained.items())
    return f"the models train with different optimisers: {words}; the setting optimizer=NAME trains all with one"


def with_seeds(runs: Sequence[SweepRun], seeds: Sequence[int]) -> list[SweepRun]:
    """Return the runs with each seed, seed by seed; each run once."""
    seeded: dict[str, SweepRun] = {}
    for seed in seeds:
        for config, settings in runs:
            run = SweepRun(config.with_seed(seed), settings)
            seeded.setdefault(run.config.spec.key, run)
    return list(seeded.values())


def plan(
    runs: Iterable[tuple[RunConfig, dict[str, str]]],
    store: Store | None,
    checkpoints: Path | Location,
    on_divergence: OnDivergence = "stop",
) -> list[PlannedRun]:
    """Look up the state of each run. Without a store, all runs are missing."""
    runs = list(runs)
    keys = [config.spec.key for config, _ in runs]
    existing = {run.key: run for run in store.runs(keys=keys)} if store else {}
    pairs = {(config.spec.task, config.spec.model) for config, _ in runs if config.spec.key not in existing}
    others = {pair: store.runs(task=pair[0], model=pair[1]) for pair in pairs} if store else {}
    planned = []
    for config, settings in runs:
        spec = config.spec
        run, folder = existing.get(spec.key), checkpoints_at(checkpoints, spec.key)
        locked = store is not None and run is not None and is_locked(store, folder)
        continues = run is not None and run.status == Status.DIVERGED and not is_settled(run, folder, on_divergence)
        older = None if run else _older_run(config, others.get((spec.task, spec.model), ()))
        planned.append(PlannedRun(config, settings, run, locked, continues, older))
    return planned


def _older_run(config: RunConfig, others: Iterable[Run]) -> Run | None:
    """Return the newest result of this run with earlier versions of its plugins.

    The result has the same seed and no newer version. The settings that both runs have must be equal, and settings that
    a plugin has gained since then must have their default values here.
    """
    spec = config.spec
    results = [
        run
        for run in others
        if Status(run.status).is_final
        and run.seed == spec.seed
        and _number(run.spec["task_version"]) <= _number(spec.task_version)
        and _number(run.spec["model_version"]) <= _number(spec.model_version)
        and _means_the_same(config.task_settings, run.spec["task_settings"])
        and _means_the_same(config.model_settings, run.spec["model_settings"])
        and _means_the_same(config.training, run.spec["training"])
    ]
    return results[-1] if results else None


def _number(version: str) -> int:
    """Return the number of a version, without the revision of a plugin file."""
    return int(version.partition("+")[0])


def _means_the_same(settings: Settings, recorded: dict[str, Any]) -> bool:
    """Return whether the settings that an earlier version recorded mean the same as these settings."""
    group = type(settings)
    now, before = (identity(group.neutral() | values) for values in (settings.canonical(), recorded))
    shared = now.keys() & before.keys()
    if any(now[name] != before[name] for name in shared):
        return False
    try:
        return shared == now.keys() or group.read({name: now[name] for name in shared}) == settings
    except UsageError:  # the shared settings are invalid without a newer one
        return False
