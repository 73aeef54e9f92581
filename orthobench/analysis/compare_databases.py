"""Compare two databases, for example from two commits: runs with the same settings, seed by seed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from orthobench.analysis.compare import (
    Contrast,
    Differences,
    SelectedRuns,
    contrast,
    differences,
    values_of,
    with_standings,
)
from orthobench.analysis.pairing import Sides, by_key, changed, single
from orthobench.analysis.selection import select_runs
from orthobench.analysis.variants import settings_of
from orthobench.errors import NoMatchError, UsageError
from orthobench.options.arguments import ComparedValue
from orthobench.settings import text
from orthobench.settings.filters import Conditions
from orthobench.store import Run, Store

VERSIONS = ("task_version", "model_version")


@dataclass(frozen=True)
class ComparedDatabase:
    """A database of the comparison.

    Attributes:
        name: its location as the user wrote it.
        status_of: returns the current status of a run, because the stored one may be out of date.
    """

    name: str
    store: Store = field(repr=False)
    status_of: Callable[[Run], str] = lambda run: run.status


@dataclass(frozen=True)
class Match:
    """Runs of the same task, model and settings in both databases; the versions of plugins may differ.

    Attributes:
        label: task, model and the settings that distinguish it from other variants of this task and model.
        seeds: the seeds that both databases have.
        identical: the number of these seeds whose runs have the same key and the same value in both databases.
        contrast: the test, and the differences in settings and environments.
    """

    label: str
    seeds: list[int]
    identical: int
    contrast: Contrast


@dataclass(frozen=True)
class Lone:
    """Settings or seeds whose runs only one database has.

    Attributes:
        settings: if the other database has exactly one variant of this task and model, the settings that differ, by
            name: the value here and the value there.
    """

    label: str
    seeds: list[int]
    settings: Differences


@dataclass(frozen=True)
class DatabaseComparison:
    """The comparison of two databases; `alone` has what only the first and what only the second contains."""

    matches: list[Match]
    alone: tuple[list[Lone], list[Lone]]


def compare_databases(
    first: ComparedDatabase,
    second: ComparedDatabase,
    conditions: Conditions,
    which: ComparedValue = "end",
    paired: bool | None = None,
) -> DatabaseComparison:
    """Compare the runs of two databases that have the same task, model and settings.

    Args:
        conditions: restrict the runs of both databases.
        which: the value of each run to compare.
        paired: whether to pair the values by seed; None pairs them if enough seeds are common (`Sides.pairs`).

    Raises:
        UsageError: neither database has runs that meet the conditions, a finished run has no number, or the values
            cannot be paired.
    """
    selected = [_select(side, conditions) for side in (first, second)]
    if not any(selected):
        raise UsageError(f"neither {first.name} nor {second.name} has runs of this selection")
    labels = _labels([run for runs in selected for run in runs])
    groups = [_group(runs) for runs in selected]
    tests = [[run for run in runs if not run.is_trial] for runs in selected]  # a trial of a search has none
    values = (values_of(first.store, tests[0], which), values_of(second.store, tests[1], which))
    common = [identity for identity, own in groups[0].items() if identity in groups[1] and not own[0].is_trial]
    pairs = [(groups[0][identity], groups[1][identity]) for identity in common]
    selections = ((SelectedRuns(first.name, left), SelectedRuns(second.name, right)) for left, right in pairs)
    tested = with_standings([contrast(*both, values, paired, len(pairs)) for both in selections], paired)
    matches = [
        Match(labels[identity], _by_seed(left, right).common, _identical(left, right, values), each)
        for identity, (left, right), each in zip(common, pairs, tested, strict=True)
    ]
    alone = tuple(_alone(groups[at], groups[1 - at], labels) for at in (0, 1))
    return DatabaseComparison(matches, (alone[0], alone[1]))


Identity = tuple[str, str, tuple[tuple[str, str], ...]]
"""Task, model and settings without versions."""


def _select(side: ComparedDatabase, conditions: Conditions) -> list[Run]:
    try:
        return select_runs(side.store.runs(), conditions, side.status_of)
    except NoMatchError:
        return []


def _identity(run: Run) -> Identity:
    # As text, because a setting can be a list, which has no hash.
    settings = {name: text(value) for name, value in _without_versions(settings_of(run)).items()}
    return run.task, run.model, tuple(sorted(settings.items()))


def _without_versions(settings: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in settings.items() if name not in VERSIONS}


def _group(runs: Sequence[Run]) -> dict[Identity, list[Run]]:
    groups: dict[Identity, list[Run]] = {}
    for run in runs:
        groups.setdefault(_identity(run), []).append(run)
    return groups


def _labels(runs: Sequence[Run]) -> dict[Identity, str]:
    """Return task, model and the settings that distinguish each identity from others of its task and model."""
    identities = dict.fromkeys(map(_identity, runs))
    labels = {}
    for task, model, settings in identities:
        rivals = [dict(other[2]) for other in identities if other[:2] == (task, model)]
        differing = [f"{name}={value}" for name, value in settings if len({rival.get(name) for rival in rivals}) > 1]
        labels[task, model, settings] = " ".join([task, model, *differing])
    return labels


def _by_seed(first: Sequence[Run], second: Sequence[Run]) -> Sides[int, Run]:
    return Sides(by_key(first, lambda run: run.seed), by_key(second, lambda run: run.seed))


def _identical(
    first: Sequence[Run], second: Sequence[Run], values: tuple[Mapping[str, float], Mapping[str, float]]
) -> int:
    """Return the number of runs that both databases have with the same value; two diverged runs have the same one."""
    left, right = (
        {run.key: own[run.key] for run in side if run.key in own}
        for side, own in ((first, values[0]), (second, values[1]))
    )
    sides = single(left, right)
    return len(sides.common) - len(changed(sides))


def _alone(own: dict[Identity, list[Run]], other: dict[Identity, list[Run]], labels: dict[Identity, str]) -> list[Lone]:
    """Return the variants and the seeds that only the first database has."""
    alone = []
    for identity, runs in own.items():
        seeds = _by_seed(runs, other.get(identity, [])).only_first
        if not seeds:
            continue
        rivals = [rival for rival in other if rival[:2] == identity[:2] and rival not in own]
        differing: Differences = {}
        if identity not in other and len(rivals) == 1:
            sides = (settings_of(runs[0]), settings_of(other[rivals[0]][0]))
            differing = differences(*([_without_versions(side)] for side in sides))
        alone.append(Lone(labels[identity], seeds, differing))
    return alone
