"""How the number of a variant came about: tuned like its rivals, as published, from a quick preset, or otherwise.

A variant is tuned if the database has the search that chose it: enough trials of its model, judged by validation data
alone, of which the best at the end has its learning rates, and other seeds for the variant itself. The database need
not say that somebody ran a search; the runs show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.halving import FEWEST_TRIALS, JUDGE, RUNGS, TrialCurve
from orthobench.settings import merged_settings
from orthobench.store import Run

Judged = Literal["tuned", "published", "own", "quick"]
"""tuned: the best of a search that all models of the column got. published: the settings of a paper's experiment.
quick: a small preset. own: any other settings, the same for all models or each model's own."""
WORDS: Mapping[Judged, str] = {
    "tuned": "tuned alike",
    "own": "other settings",
    "published": "as published",
    "quick": "quick presets",
}
"""The headings of the blocks, in order."""
SEARCHED = "learning_rate"
"""The ending of the names of the settings that a search tries."""
DECIDES = "judged_by"


def how_judged(condition: Condition, variant: VariantData) -> Judged:
    """Return how a variant's number came about."""
    if trial_count(condition, variant):
        return "tuned"
    if variant.comparison is not None and not variant.comparison.differences:
        return "published"
    return "quick" if all(run.preset == "quick" for run in variant.runs) else "own"


def trial_count(condition: Condition, variant: VariantData) -> int:
    """Return the number of trials of the search that chose a variant; 0 if no complete search did.

    Trials of several searches count together: the best of all of them has to be the variant's.
    """
    key = ("trials", condition.key, len(condition.variants))
    if key not in variant.cache:
        variant.cache[key] = _trial_count(condition, variant)
    count: int = variant.cache[key]
    return count


def _trial_count(condition: Condition, variant: VariantData) -> int:
    run = variant.run
    if run.spec["training"].get(DECIDES) != "validation":
        return 0
    fixed = _without_search(run)
    own = [trial for trial in condition.variants if trial.run.is_trial and _without_search(trial.run) == fixed]
    curves = [_curve(number, trial) for number, trial in enumerate(own)]
    started = [curve for curve in curves if curve.has_reached(RUNGS[0])]
    complete = [curve for curve in started if curve.has_reached(1.0)]
    if len(started) < FEWEST_TRIALS or not complete:
        return 0
    best = min(complete, key=lambda curve: curve.cost(1.0, condition.metric.sign))
    chosen = own[best.number]
    seeds = {trial.run.seed for trial in own}
    is_fresh = not seeds & {each.seed for each in variant.runs}
    return len(started) if is_fresh and _searched(chosen.run) == _searched(run) else 0


def _curve(number: int, trial: VariantData) -> TrialCurve:
    curve = trial.series(JUDGE, trial.run.metric).curve(trial.run.id)
    values = list(zip(curve[0].tolist(), curve[1].tolist(), strict=True)) if curve else []
    return TrialCurve(number, trial.run, values)


def _searched(run: Run) -> dict[str, Any]:
    return {name: value for name, value in merged_settings(run.spec).items() if name.endswith(SEARCHED)}


def _without_search(run: Run) -> dict[str, Any]:
    """Return what the trials of a search share with its result: model, version, and settings that they do not try."""
    fixed = {name: value for name, value in merged_settings(run.spec).items() if not name.endswith(SEARCHED)}
    return fixed | {"model": run.model, "version": run.spec["model_version"], DECIDES: ""}
