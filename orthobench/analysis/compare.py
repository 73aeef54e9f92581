"""Compare two selections of runs: their settings, environments and results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import pairwise
from typing import Any

from orthobench.analysis.inference import (
    Comparison,
    Standing,
    adjusted,
    compare_paired,
    compare_unpaired,
    deciding_seeds,
    standings,
)
from orthobench.analysis.own_code import newest_versions
from orthobench.analysis.pairing import Sides, by_key
from orthobench.analysis.scores import all_solve
from orthobench.analysis.selection import find_runs
from orthobench.analysis.statistics import CurveEnd, Median, Summary, curve_end, median
from orthobench.analysis.variants import backends, newer_version, settings_of
from orthobench.errors import UsageError
from orthobench.options.arguments import ComparedValue
from orthobench.settings.filters import Conditions, conditions_text, parse_conditions
from orthobench.store import Run, Status, Store
from orthobench.store.columns import metric_columns


@dataclass(frozen=True)
class SelectedRuns:
    """Runs, and the text that selects them.

    Attributes:
        trials: the number of trials of searches that the text selects too. They are left out, because they are judged
            by validation data alone and have no tests.
        earlier: the versions of the user's own code of which it selects runs too. They are left out as on the page,
            because a change of the code makes another model.
    """

    text: str
    runs: list[Run]
    trials: int = 0
    earlier: tuple[str, ...] = ()


Differences = dict[str, tuple[list[Any], list[Any]]]
"""The values that occur in the first selection's runs and in the second's, by name; None where a run has no value."""


@dataclass(frozen=True)
class Contrast:
    """The first selection compared with another one.

    Attributes:
        settings: the settings that differ, by name.
        environment: the same for the environments.
        counts: the number of runs by status, for each selection.
        medians: the median of the values that are compared, of the pairs if there are some, for each selection. A
            diverged run counts as the worst.
        paired: whether the values are paired by seed.
        p: the p value with Holm's adjustment for all contrasts of the comparison; None without a test.
        standing: what the seeds show.
        deciding: the number of seeds of each that would decide what too few seeds leave open; None if nothing is open.
        both_solve: whether both selections solve the same task in every seed. Of two databases it is not asked, because
            a change of the code may do harm long before a model fails.
    """

    first: SelectedRuns
    second: SelectedRuns
    settings: Differences
    environment: Differences
    metric: str
    counts: tuple[dict[str, int], dict[str, int]]
    medians: tuple[Median | None, Median | None]
    paired: bool
    result: Comparison | None
    caution: str
    p: float | None = None
    standing: Standing = Standing.FEW
    deciding: int | None = None
    both_solve: bool = False

    @property
    def second_is(self) -> str:
        """Whether the second selection is "better" or "worse" in more pairs of runs; empty if it is neither."""
        if self.result is None or self.result.first_lower == 0.5:
            return ""
        is_higher = self.result.first_lower > 0.5
        return "worse" if is_higher == (self.first.runs[0].main_metric.goal == "min") else "better"

    @property
    def difference(self) -> Summary | None:
        """The difference of the means, the first minus the second; None without a test, or if a run diverged.

        Without the runs that diverged, the means would say the opposite of the ranks.
        """
        diverged = any(counts.get("diverged") for counts in self.counts)
        return None if self.result is None or diverged else self.result.difference

    @property
    def verdict(self) -> str:
        """How the second selection stands next to the first, in words."""
        match self.standing:
            case Standing.APART:
                return f"{self.second_is}, tested apart"
            case Standing.CLEAR:
                return f"{self.second_is} in every seed"
            case standing:
                return str(standing)

    @property
    def reason(self) -> str:
        """How many seeds would decide, if too few seeds leave it open."""
        if self.deciding is None:
            return ""
        return f"seeds of each for a test: {self.deciding}"


def _select(
    store: Store,
    text: str,
    shared: Conditions,
    status_of: Callable[[Run], str],
    stored: Callable[..., list[Run]],
) -> SelectedRuns:
    """Return the run whose key begins with the text, or the runs that meet its conditions (`analysis.selection`).

    Args:
        shared: further conditions, in addition to the text's.
        status_of: returns the current status of a run, because the stored one may be out of date.
        stored: reads the runs of the store, as for `find_runs`.

    Raises:
        UsageError: no run has this key, or no run meets the conditions.
    """
    if "=" not in text:
        try:
            return SelectedRuns(text, [store.get(text)])
        except UsageError as error:
            raise UsageError(f"{error}; a condition is KEY=VALUE, for example model={text}") from error
    conditions = parse_conditions([*([conditions_text(shared)] if shared else []), text])
    runs = find_runs(stored, conditions, status_of)
    if not runs:
        raise UsageError("the database holds no runs yet: train one with `orthobench run`")
    tested = [run for run in runs if not run.is_trial]
    if not tested:
        raise UsageError(f"'{text}' selects only trials of searches ({len(runs)}), and trials have no tests")
    chosen = tested if "model_version" in conditions else newest_versions(tested)[0]
    kept = {run.id for run in chosen}
    earlier = sorted({run.spec["model_version"] for run in tested if run.id not in kept})
    return SelectedRuns(text, chosen, len(runs) - len(tested), tuple(earlier))


def contrasts(
    store: Store,
    selections: Sequence[str],
    shared: Conditions,
    status_of: Callable[[Run], str],
    which: ComparedValue = "end",
    paired: bool | None = None,
) -> list[Contrast]:
    """Compare the first selection with each of the others.

    Args:
        selections: two or more texts that `_select` reads.
        shared: conditions that restrict all selections.
        which: the value of each run to compare.
        paired: whether to pair the values by seed; None pairs them if enough seeds are common (`Sides.pairs`).

    Raises:
        UsageError: a selection is empty, their metrics differ, a finished run has no number, or the values cannot be
            paired.
    """
    stored = cache(store.runs)  # once for all selections
    first, *others = [_select(store, text, shared, status_of, stored) for text in selections]
    runs = {run.key: run for side in (first, *others) for run in side.runs}
    values = values_of(store, list(runs.values()), which)
    solved = {
        side.text: all_solve([(run, values[run.key]) for run in side.runs if run.key in values])
        for side in (first, *others)
    }
    compared = [
        replace(
            contrast(first, other, (values, values), paired, len(others)),
            both_solve=solved[first.text] and solved[other.text] and _are_on_one_task(first, other),
        )
        for other in others
    ]
    return with_standings(compared, paired)


def with_standings(contrasts: Sequence[Contrast], pairing: bool | None) -> list[Contrast]:
    """Return the contrasts of one comparison with what the seeds show, adjusted for their number.

    Args:
        pairing: whether the user asked for pairs, or for none; the number of seeds that decide depends on it.
    """
    results = [each.result for each in contrasts]
    needed = deciding_seeds(len(contrasts), paired=pairing is True)
    states = standings(results, [each.both_solve for each in contrasts])
    return [
        replace(each, p=p, standing=standing, deciding=needed if standing in (Standing.CLEAR, Standing.FEW) else None)
        for each, p, standing in zip(contrasts, adjusted(results), states, strict=True)
    ]


VALUES: dict[ComparedValue, Callable[[Run], float | None]] = {
    "final": lambda run: run.final_value,
    "best": lambda run: run.best_test,
    "at_best_validation": lambda run: run.at_best_validation,
}
"""The values to compare that are columns of a run."""


def values_of(store: Store, runs: Sequence[Run], which: ComparedValue) -> dict[str, float]:
    """Return the value of each finished or diverged run by key; a diverged run is infinitely bad.

    Raises:
        UsageError: a finished run has no value, or its value is not a number.
    """
    final = [run for run in runs if Status(run.status).is_final]
    ends = ends_of_tests(store, final) if which == "end" else {}
    values = {}
    for run in final:
        if run.is_trial:
            raise UsageError(f"run {run.key} is a trial of a search, which has no tests: leave it out")
        if run.status == Status.DIVERGED:
            values[run.key] = run.main_metric.worst
            continue
        end = ends.get(run.id)
        value = (end.value if end else None) if which == "end" else VALUES[which](run)
        if value is None and run.best_value is not None and which in ("best", "at_best_validation"):
            judge, other = ("validation data", "at_best_validation") if which == "best" else ("its tests", "best")
            raise UsageError(f"run {run.key} is judged by {judge}: give `value={other!r}`")
        if value is None or math.isnan(value):
            shown = "no value" if value is None else "the value NaN"
            raise UsageError(
                f"run {run.key} is finished and has {shown} of {run.metric} ({which}): leave it out, for example with "
                "seed=..., or train it again with `force=True`"
            )
        values[run.key] = value
    return values


def ends_of_tests(store: Store, runs: Sequence[Run]) -> dict[int, CurveEnd]:
    """Return the end of each run's tests of its metric, by the run's id; a run without tests is left out.

    The end of a run that stopped because its task was solved is its last test.
    """
    ends: dict[int, CurveEnd] = {}
    solved = {run.id for run in runs if run.solved_at is not None}
    for metric in {run.metric for run in runs}:
        columns = metric_columns(store, [run.id for run in runs if run.metric == metric], "test", metric)
        for run, (start, stop) in zip(columns.run_of.tolist(), pairwise(columns.bounds.tolist()), strict=True):
            if end := curve_end(columns.value[stop - 1 if run in solved else start : stop].tolist()):
                ends[run] = end
    return ends


def contrast(
    first: SelectedRuns,
    second: SelectedRuns,
    values: tuple[Mapping[str, float], Mapping[str, float]],
    pairing: bool | None,
    comparisons: int = 1,
) -> Contrast:
    """Compare two selections by their runs' metric.

    Args:
        values: the values of each selection by run key, from `values_of`.
        pairing, comparisons: as for `Sides.pairs`.

    Raises:
        UsageError: the two have different metrics, or their values cannot be paired.
    """
    metrics = {run.metric for run in (*first.runs, *second.runs)}
    if len(metrics) > 1:
        tasks = sorted({run.task for run in first.runs} & {run.task for run in second.runs})
        hint = f"; narrow both to a task: {', '.join(f'task={task}' for task in tasks)}" if tasks else ""
        raise UsageError(f"the selections have different metrics: {', '.join(sorted(metrics))}{hint}")
    sides = Sides(_by_seed(first, values[0]), _by_seed(second, values[1]), (first.text, second.text))
    pairs = sides.pairs(pairing, comparisons)
    compared = sides.samples if pairs is None else pairs
    result = compare_unpaired(*compared) if pairs is None else compare_paired(*compared)
    return Contrast(
        first,
        second,
        differences(*([_settings(run) for run in side.runs] for side in (first, second))),
        differences(*([_facts(run) for run in side.runs] for side in (first, second))),
        metrics.pop(),
        (_counts(first), _counts(second)),
        (median(compared[0]), median(compared[1])),
        pairs is not None,
        result,
        "; ".join(_cautions(first, second)),
    )


def _are_on_one_task(first: SelectedRuns, second: SelectedRuns) -> bool:
    return len({run.condition for run in (*first.runs, *second.runs)}) == 1


def _cautions(first: SelectedRuns, second: SelectedRuns) -> list[str]:
    """Describe what weakens the comparison."""
    is_one = _are_on_one_task(first, second)
    cautions = [] if is_one else ["the tasks' settings differ: the numbers are of different tasks"]
    for side in (first, second):
        own = []
        if side.trials:
            own.append("leaves out the trials of searches, which have no tests")
        if side.earlier:
            versions = " or ".join(f"model_version={version}" for version in side.earlier)
            own.append(f"leaves out runs of earlier versions of the code: {versions} selects them")
        for outdated in sorted({f"{run.model} {run.spec['model_version']}" for run in side.runs if newer_version(run)}):
            own.append(f"has runs of an earlier version of the model: {outdated}")
        if len({run.variant for run in side.runs}) > 1:
            own.append("mixes settings of models or training: narrow it by key=value")
        if len(backends(side.runs)) > 1:
            own.append("pools runs of different back ends")
        cautions += [f"'{side.text}' {caution}" for caution in own]
    return cautions


def _by_seed(selection: SelectedRuns, values: Mapping[str, float]) -> dict[int, list[float]]:
    runs = by_key((run for run in selection.runs if run.key in values), lambda run: run.seed)
    return {seed: [values[run.key] for run in own] for seed, own in runs.items()}


def _counts(selection: SelectedRuns) -> dict[str, int]:
    return dict(Counter(str(run.status) for run in selection.runs))


def _settings(run: Run) -> dict[str, Any]:
    return {"task": run.task, "model": run.model, **settings_of(run)}


def _facts(run: Run) -> dict[str, Any]:
    return {**run.environment.flat_facts, "device": run.device, "backend": run.backend}


def differences(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> Differences:
    """Return the values in either selection that are not the same in all runs, by name."""
    differing = {}
    for name in dict.fromkeys(name for run in (*first, *second) for name in run):
        # By their text, because a setting can be a list, which has no hash.
        left, right = ({str(run.get(name)): run.get(name) for run in side} for side in (first, second))
        if len(left | right) > 1:
            differing[name] = [*left.values()], [*right.values()]
    return differing
