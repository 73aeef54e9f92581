"""What a sweep consists of, and how much of it is there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from orthobench.checkpoint import checkpoints_at
from orthobench.errors import UsageError
from orthobench.locks import is_locked
from orthobench.plugins import Catalog
from orthobench.spec import Preset, Resolved, resolve
from orthobench.store import Run, Status, Store
from orthobench.sweep.grid import combinations
from orthobench.train import OnDivergence, is_settled


@dataclass(frozen=True)
class PlannedRun:
    """One run of a sweep: the grid's values that single it out, and its record if it was begun before."""

    resolved: Resolved
    chosen: dict[str, str]
    run: Run | None
    busy: bool
    reopened: bool = False
    """It has diverged, and is to go on in spite of it."""

    @property
    def state(self) -> str:
        """missing, running (by another process now), or where the run was left."""
        if self.busy:
            return "running"
        if self.run is None:
            return "missing"
        return Status.INTERRUPTED if self.run.status == Status.RUNNING else self.run.status

    @property
    def is_wanted(self) -> bool:
        """Whether the sweep still has to train it."""
        return not self.busy and (self.run is None or self.reopened or not Status(self.run.status).is_final)


def resolve_all(
    catalog: Catalog,
    task: str,
    models: Sequence[str],
    given: Mapping[str, str],
    grid: Mapping[str, list[str]],
    seeds: Sequence[int],
    preset: Preset,
) -> list[tuple[Resolved, dict[str, str]]]:
    """The runs of a grid, seed by seed, so that a sweep cut short has compared every model.

    Raises:
        UsageError: a name or value does not fit, or two points of the grid are the same run.
    """
    both = given.keys() & grid.keys()
    if both:
        raise UsageError(f"{', '.join(sorted(both))} is both set and in the grid: leave one out")
    first = seeds[0]
    variants = [
        (resolve(catalog, task, model, {**given, **chosen}, preset, first), chosen)
        for model in dict.fromkeys(models)
        for chosen in combinations(dict(grid))
    ]
    keys = [resolved.spec.key for resolved, _ in variants]
    if len(set(keys)) < len(keys):
        raise UsageError("two points of the grid are the same run: name each value once")
    return [(resolved.with_seed(seed), chosen) for seed in seeds for resolved, chosen in variants]


def plan(
    runs: Sequence[tuple[Resolved, dict[str, str]]],
    store: Store | None,
    checkpoints: Path | str,
    on_divergence: OnDivergence = "stop",
) -> list[PlannedRun]:
    """How far each run is; without a store none was begun."""
    keys = [resolved.spec.key for resolved, _ in runs]
    known = {run.key: run for run in store.runs(keys=keys)} if store else {}
    planned = []
    for resolved, chosen in runs:
        run, folder = known.get(resolved.spec.key), checkpoints_at(checkpoints, resolved.spec.key)
        busy = store is not None and run is not None and is_locked(store, folder)
        reopened = run is not None and run.status == Status.DIVERGED and not is_settled(run, folder, on_divergence)
        planned.append(PlannedRun(resolved, chosen, run, busy, reopened))
    return planned
