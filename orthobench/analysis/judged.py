"""How the number of a variant came about: tuned like its rivals, as published, from a quick preset, or otherwise.

A variant is tuned if the database has the search that chose it: the trials that the rule of the search asks for,
judged by validation data alone, of which the winner has its settings, and other seeds for the variant itself. The
database need not say that somebody ran a search; the runs show it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Literal

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.analysis.rate_search import JUDGE, LOSS, RATES, Edge, TrialCurve, search_rates
from orthobench.analysis.statistics import FEWEST_SEEDS
from orthobench.papers import experiments, papers
from orthobench.settings import merged_settings, text
from orthobench.spec.index import built_in
from orthobench.store import Run

Judged = Literal["tuned", "published", "own", "quick"]
"""tuned: the best of a search that all models of the column got. published: the settings of a paper's experiment, all
from its sources. quick: a small preset. own: any other settings, the same for all models or each model's own."""
WORDS: Mapping[Judged, str] = {
    "tuned": "tuned alike",
    "own": "other settings",
    "published": "as published",
    "quick": "quick presets",
}
"""The headings of the blocks, in order."""
SEARCHED = "learning_rate"
"""The setting that a search tries, and the ending of the names of the others."""
RECURRENT = "recurrent_learning_rate"
DECIDES = "judged_by"


@dataclass(frozen=True)
class Choice:
    """How a search chose a variant.

    Attributes:
        trials: the number of its trials.
        edge: whether the chosen rate is still the highest or the lowest after the search has added rates.
        settings: what the search tried, as it chose it.
    """

    trials: int
    edge: Edge
    settings: Mapping[str, str] = field(default_factory=dict, compare=False)


def how_judged(condition: Condition, variant: VariantData) -> Judged:
    """Return how a variant's number came about."""
    if choice_of(condition, variant):
        return "tuned"
    if variant.experiment is not None and not variant.experiment.own_settings:
        return "published"
    return "quick" if all(run.preset == "quick" for run in variant.runs) else "own"


def precedence(condition: Condition, variant: VariantData, paper: str) -> tuple[bool | int | float, ...]:
    """Return the place in the order in which a model's variants compete to stand for it: the greatest is shown.

    The matrix, the page of a task and the page of a model have this order. How the settings were found comes first,
    because headings say it: tuned, then published. Three seeds go before fewer. Among equals an experiment goes before
    settings of no paper, those of `paper` before those of others, runs without a tag before tagged ones, and earlier
    experiments before later ones. The score decides the rest, so mostly between settings that belong to no experiment.

    Args:
        paper: the key of the paper whose experiments go first (`first_paper`).
    """
    run, experiment = variant.run, variant.experiment
    order = [each.identity for each in experiments(run.task, run.model)]
    judged, value = how_judged(condition, variant), variant.median
    return (
        judged == "tuned",
        judged == "published",
        len(variant.scores) >= FEWEST_SEEDS,
        experiment is not None,
        experiment is not None and experiment.paper == paper,
        not variant.tags,
        -order.index(experiment.identity) if experiment else -len(order),
        -condition.metric.sign * value.value if value else -math.inf,
    )


def representatives(condition: Condition) -> dict[str, VariantData]:
    """Return the variant that stands for each model of a condition, as far as it has a result, by `precedence`."""
    paper = first_paper(condition.variants)
    ranked = sorted(
        (each for each in condition.variants if each.median), key=lambda each: precedence(condition, each, paper)
    )
    return {variant.run.model: variant for variant in ranked}


def first_paper(variants: Iterable[VariantData]) -> str:
    """Return the paper, by its key, whose experiments `run` takes first of those that these variants carry out."""
    own = {each.experiment.paper for each in variants if each.experiment and not each.experiment.own_settings}
    return next((paper.key for paper in papers() if paper.key in own), "")


def choice_of(condition: Condition, variant: VariantData) -> Choice | None:
    """Return how a search chose a variant; None if no complete search did."""
    key = ("choice", condition.key, len(condition.variants))
    if key not in variant.cache:
        variant.cache[key] = _choice_of(condition, variant)
    choice: Choice | None = variant.cache[key]
    return choice


def _choice_of(condition: Condition, variant: VariantData) -> Choice | None:
    run = variant.run
    if run.spec["training"].get(DECIDES) != "validation":
        return None
    axis, names = _second_axis(condition, run)
    shared = _without_search(run, names)
    own = [
        trial
        for trial in condition.variants
        if trial.run.is_trial and trial.run.model == run.model and _without_search(trial.run, names) == shared
    ]
    curves = {(curve.rate, curve.value): curve for trial in own if (curve := _curve(trial, names)).rate in RATES}
    values = {value for _, value in curves}
    if len(values) < axis:
        return None
    search = search_rates([curves.get((rate, value), TrialCurve(rate, value)) for rate in RATES for value in values])
    if search.winner is None or search.winner.run is None:
        return None
    seeds = {trial.run.seed for trial in own}
    is_fresh = not seeds & {each.seed for each in variant.runs}
    if not is_fresh or _searched(search.winner.run, names) != _searched(run, names):
        return None
    return Choice(len(curves), search.edge, {name: text(value) for name, value in _searched(run, names).items()})


def _second_axis(condition: Condition, run: Run) -> tuple[int, set[str]]:
    """Return how many values the second axis of a run's model has, and the settings that make them up."""
    plugin = built_in()["plugins"].get(f"model/{run.model}")
    if plugin is None:  # whoever wrote the model did not record it, but its trials differ in these settings
        settings = [
            each.run.spec["model_settings"]
            for each in condition.variants
            if each.run.is_trial and each.run.model == run.model
        ]
        varying = {name for each in settings for name in each if len({text(other.get(name)) for other in settings}) > 1}
        return 1, {name for name in varying if not name.endswith(SEARCHED)} - {"hidden_size"}
    axis = plugin["second_axis"] or []
    shares = RECURRENT in run.spec["model_settings"] and not axis
    return max(1, len(axis), 2 * shares), {name for value in axis for name in value}


def _curve(trial: VariantData, names: Set[str]) -> TrialCurve:
    """Return a trial's point and its curve.

    Args:
        names: the settings of the model's second axis; without any it is the share of the recurrent matrix's rate.
    """
    run, settings = trial.run, trial.run.spec["model_settings"]

    def curve(metric: str) -> list[tuple[int, float]]:
        logged = trial.series(JUDGE, metric).curve(run.id)
        return list(zip(logged[0].tolist(), logged[1].tolist(), strict=True)) if logged else []

    rate = float(settings.get(SEARCHED, math.nan))
    share = f"{float(settings.get(RECURRENT, math.nan)) / rate:.3g}"
    value = " ".join(f"{name}={text(settings.get(name))}" for name in sorted(names)) or share
    return TrialCurve(rate, value, run, curve(run.metric), curve(LOSS.name))


def _searched(run: Run, names: Set[str]) -> dict[str, Any]:
    """Return the settings that the trials of a search try; the hidden size follows from those of the second axis."""
    return {name: value for name, value in merged_settings(run.spec).items() if _is_searched(name, names)}


def _without_search(run: Run, names: Set[str]) -> dict[str, Any]:
    """Return what the trials of a model and the result of their search share: settings not tried, and the version."""
    fixed = {name: value for name, value in merged_settings(run.spec).items() if not _is_searched(name, names)}
    return fixed | {"version": run.spec["model_version"], DECIDES: ""}


def _is_searched(name: str, names: Set[str]) -> bool:
    return name.endswith(SEARCHED) or name in names or (bool(names) and name == "hidden_size")
