"""How the number of a variant came about: tuned like its rivals, as published, from a quick preset, or otherwise.

A variant is tuned if the database has the search that chose it: enough trials of its model, judged by validation data
alone, of which the best at the end has its learning rates, and other seeds for the variant itself. The database need
not say that somebody ran a search; the runs show it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.halving import FEWEST_TRIALS, JUDGE, RUNGS, Edge, TrialCurve, edge_of
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
"""The setting that a search tries, and the ending of the names of the others."""
DECIDES = "judged_by"


@dataclass(frozen=True)
class Choice:
    """How a search chose a variant.

    Attributes:
        trials: the number of its trials.
        edge: whether the chosen rate is the highest or the lowest of the trials.
    """

    trials: int
    edge: Edge


def how_judged(condition: Condition, variant: VariantData) -> Judged:
    """Return how a variant's number came about."""
    if choice_of(condition, variant):
        return "tuned"
    if variant.comparison is not None and not variant.comparison.differences:
        return "published"
    return "quick" if all(run.preset == "quick" for run in variant.runs) else "own"


def choice_of(condition: Condition, variant: VariantData) -> Choice | None:
    """Return how a search chose a variant; None if no complete search did.

    Trials of several searches count together: the best of all of them has to be the variant's.
    """
    key = ("choice", condition.key, len(condition.variants))
    if key not in variant.cache:
        variant.cache[key] = _choice_of(condition, variant)
    choice: Choice | None = variant.cache[key]
    return choice


def _choice_of(condition: Condition, variant: VariantData) -> Choice | None:
    run = variant.run
    if run.spec["training"].get(DECIDES) != "validation":
        return None
    fixed = _without_search(run)
    own = [trial for trial in condition.variants if trial.run.is_trial and _without_search(trial.run) == fixed]
    curves = [_curve(number, trial) for number, trial in enumerate(own)]
    started = [curve for curve in curves if curve.has_reached(RUNGS[0])]
    complete = [curve for curve in started if curve.has_reached(1.0)]
    if len(started) < FEWEST_TRIALS or not complete:
        return None
    best = min(complete, key=lambda curve: curve.cost(1.0, condition.metric.sign))
    chosen = _searched(own[best.number].run)
    seeds = {trial.run.seed for trial in own}
    is_fresh = not seeds & {each.seed for each in variant.runs}
    if not is_fresh or chosen != _searched(run):
        return None
    rates = [float(_searched(own[curve.number].run)[SEARCHED]) for curve in started]
    return Choice(len(started), edge_of(float(chosen[SEARCHED]), rates))


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
