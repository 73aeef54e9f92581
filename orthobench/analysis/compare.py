"""Compare two selections of runs: their settings, environments and results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from orthobench.analysis.selection import Conditions, describe, parse_conditions, select_runs
from orthobench.analysis.statistics import Comparison, compare_paired, compare_unpaired
from orthobench.analysis.variants import settings_of
from orthobench.errors import UsageError
from orthobench.store import Run, Status, Store


@dataclass(frozen=True)
class Selection:
    """Runs, and the text that selects them."""

    text: str
    runs: list[Run]


@dataclass(frozen=True)
class Contrast:
    """The first selection against another.

    Attributes:
        settings: settings that differ: by name, the values of the first side's runs and of the second's.
        environment: likewise for the environments.
        paired: whether the values are paired by seed.
    """

    first: Selection
    second: Selection
    settings: dict[str, tuple[str, str]]
    environment: dict[str, tuple[str, str]]
    metric: str
    paired: bool
    result: Comparison | None
    caution: str


def select(
    store: Store,
    text: str,
    shared: Conditions | None = None,
    status_of: Callable[[Run], str] = lambda run: run.status,
) -> Selection:
    """Return the run that a key's first digits name, or the runs that meet conditions (`analysis.selection`).

    Args:
        shared: conditions in addition to those of the text.
        status_of: the status of a run, where the stored one may be out of date.

    Raises:
        UsageError: no run has this key, or no run meets the conditions.
    """
    if "=" not in text:
        try:
            return Selection(text, [store.get(text)])
        except UsageError as error:
            raise UsageError(f"{error}; a condition is KEY=VALUE, for example model={text}") from error
    conditions = parse_conditions([*([describe(shared)] if shared else []), text])
    runs = select_runs(store.runs(), conditions, status_of)
    if not runs:
        raise UsageError("the database holds no runs yet: make one with `orthobench run`")
    return Selection(text, runs)


def check_count(selections: Sequence[str]) -> None:
    """Refuse fewer than two selections.

    Raises:
        UsageError: there are fewer than two.
    """
    if len(selections) < 2:
        raise UsageError("name two selections, for example model=scornn model=lstm")


def contrasts(
    store: Store,
    selections: Sequence[str],
    shared: Conditions,
    status_of: Callable[[Run], str],
    which: str = "final",
) -> list[Contrast]:
    """Compare the first selection with each other one.

    Args:
        selections: texts that `select` reads.
        shared: conditions that restrict all selections.

    Raises:
        UsageError: fewer than two selections, an empty one, or selections with different metrics.
    """
    check_count(selections)
    first, *others = [select(store, text, shared, status_of) for text in selections]
    return [contrast(first, other, which) for other in others]


def contrast(first: Selection, second: Selection, which: str = "final") -> Contrast:
    """Compare two selections in their runs' metric, at the end or at its best.

    Values are paired by seed where both sides have one run for each of at least two common seeds.

    Raises:
        UsageError: the two have different metrics.
    """
    metrics = {run.metric for run in (*first.runs, *second.runs)}
    if len(metrics) > 1:
        tasks = sorted({run.task for run in first.runs} & {run.task for run in second.runs})
        hint = f"; narrow both to a task: {', '.join(f'task={task}' for task in tasks)}" if tasks else ""
        raise UsageError(f"the selections have different metrics: {', '.join(sorted(metrics))}{hint}")
    sides = [_values(selection, which) for selection in (first, second)]
    left, right = ({seed: values[0] for seed, values in side.items() if len(values) == 1} for side in sides)
    common = sorted(left.keys() & right.keys())
    single = all(len(values) == 1 for side in sides for values in side.values())
    result: Comparison | None
    if single and len(common) > 1:
        paired = True
        result = compare_paired([left[seed] for seed in common], [right[seed] for seed in common])
    else:
        paired = False
        result = compare_unpaired(*([value for values in side.values() for value in values] for side in sides))
    conditions = {run.condition for run in (*first.runs, *second.runs)}
    cautions = [] if len(conditions) == 1 else ["the tasks' settings differ: these numbers are not of the same task"]
    for side in (first, second):
        if (mixed := len({run.variant for run in side.runs})) > 1:
            cautions.append(f"'{side.text}' mixes {mixed} settings of models or training: narrow it by key=value")
    return Contrast(
        first,
        second,
        _differences(*([_settings(run) for run in side.runs] for side in (first, second))),
        _differences(*([_facts(run) for run in side.runs] for side in (first, second))),
        metrics.pop(),
        paired,
        result,
        "; ".join(cautions),
    )


def _values(selection: Selection, which: str) -> dict[int, list[float]]:
    """Return the finished runs' values, by seed."""
    values: dict[int, list[float]] = {}
    for run in selection.runs:
        value = run.best_value if which == "best" else run.final_value
        if run.status == Status.FINISHED and value is not None:
            values.setdefault(run.seed, []).append(value)
    return values


def _settings(run: Run) -> dict[str, Any]:
    return {"task": run.task, "model": run.model, **settings_of(run)}


def _facts(run: Run) -> dict[str, Any]:
    facts = dict(run.environment.facts)
    packages = {f"package {name}": version for name, version in facts.pop("packages", {}).items()}
    return {**facts, **packages, "device": run.device, "backend": run.backend}


def _differences(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> dict[str, tuple[str, str]]:
    """Return the values of either side that are not the same in all runs, by name."""
    differences = {}
    for name in dict.fromkeys(name for run in (*first, *second) for name in run):
        left, right = (dict.fromkeys(str(run.get(name, "–")) for run in side) for side in (first, second))
        if len(left | right) > 1:
            differences[name] = ", ".join(left), ", ".join(right)
    return differences


def adjusted(contrasts: Sequence[Contrast]) -> list[float | None]:
    """Return the contrasts' p values, adjusted by Holm for their number."""
    from orthobench.analysis.statistics import holm

    tested = [number for number, entry in enumerate(contrasts) if entry.result is not None]
    values = holm([entry.result.p for entry in contrasts if entry.result is not None])
    by_number = dict(zip(tested, values, strict=True))
    return [by_number.get(number) for number in range(len(contrasts))]
