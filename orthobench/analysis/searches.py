"""Read the searches of a database: their trials, and which settings matter."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from orthobench.analysis.conditions import Condition, VariantData
from orthobench.store import Run, Status, Store

RECORD = "search "
"""The prefix of the names of a search's records in the database."""
FEWEST_TRIALS = 5
"""The fewest finished trials from which the importance of settings is estimated."""
WIDE = 20.0
"""The ratio of the largest to the smallest value from which on a setting is treated logarithmically."""


@dataclass(frozen=True)
class SearchTrial:
    """A trial, with its drawn settings and the best value of its objective (None for a run without one)."""

    number: int
    settings: dict[str, str]
    run: Run
    value: float | None


@dataclass(frozen=True)
class SearchData:
    """A search with the trials that have runs.

    Attributes:
        split: the split of the objective.
        importance: the share of each setting, by optuna's PED-ANOVA (Watanabe et al., IJCAI 2023); None without optuna
            or with too few finished trials.
    """

    key: str
    condition: Condition
    model: str
    split: str
    trials: list[SearchTrial]
    importance: dict[str, float] | None

    @property
    def names(self) -> list[str]:
        """The names of the searched settings."""
        return list(dict.fromkeys(name for trial in self.trials for name in trial.settings))

    @property
    def ranked(self) -> list[SearchTrial]:
        """The trials with a value, best first."""
        sign = self.condition.metric.sign
        valued = [trial for trial in self.trials if trial.value is not None]
        return sorted(valued, key=lambda trial: sign * (trial.value or 0.0))


def collect_searches(store: Store, conditions: Sequence[Condition]) -> list[SearchData]:
    """Return the searches whose trials are among these conditions' runs."""
    records: dict[str, dict[str, dict[str, str]]] = {}
    for record in store.benchmarks():
        if record.name.startswith(RECORD):
            records.setdefault(record.name[len(RECORD) :], {}).setdefault(
                record.results["run"], record.results["chosen"]
            )
    where = {
        run.key: (condition, variant, run)
        for condition in conditions
        for variant in condition.variants
        for run in variant.runs
    }
    searches = []
    for key, points in records.items():
        present = [(settings, *where[run]) for run, settings in points.items() if run in where]
        if not present:
            continue
        _, condition, first, _ = present[0]
        split = "valid" if len(first.series("valid", condition.metric.name)) else "test"
        trials = [
            SearchTrial(number, settings, run, _best(condition, variant, run, split))
            for number, (settings, own, variant, run) in enumerate(present)
            if own is condition
        ]
        search = SearchData(key, condition, first.run.model, split, trials, None)
        searches.append(SearchData(key, condition, first.run.model, split, trials, _importance(search)))
    return searches


def _best(condition: Condition, variant: VariantData, run: Run, split: str) -> float | None:
    """Return the best value of the objective over a finished run's evaluations."""
    if run.status != Status.FINISHED:
        return None
    curve = variant.series(split, condition.metric.name).curve(run.id)
    finite = [value for value in curve[1].tolist() if math.isfinite(value)] if curve else []
    return (min if condition.metric.goal == "min" else max)(finite, default=None)


def _importance(search: SearchData) -> dict[str, float] | None:
    ranked = search.ranked
    if len(ranked) < FEWEST_TRIALS:
        return None
    try:
        import optuna
    except ImportError:
        return None
    axes = {name: _numbers([trial.settings.get(name, "") for trial in ranked]) for name in search.names}
    distributions: dict[str, optuna.distributions.BaseDistribution] = {}
    for name, values in axes.items():
        if values is None:
            choices = sorted({trial.settings.get(name, "") for trial in ranked})
            distributions[name] = optuna.distributions.CategoricalDistribution(choices)
        else:
            distributions[name] = optuna.distributions.FloatDistribution(min(values), max(values), log=is_wide(values))
    varying = {name: d for name, d in distributions.items() if not d.single()}
    if not varying:
        return None
    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(direction="minimize" if search.condition.metric.goal == "min" else "maximize")
    for number, trial in enumerate(ranked):
        params = {
            name: (numbers[number] if (numbers := axes[name]) is not None else trial.settings.get(name, ""))
            for name in varying
        }
        study.add_trial(optuna.trial.create_trial(params=params, distributions=varying, value=trial.value))
    evaluator = optuna.importance.PedAnovaImportanceEvaluator()
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def _numbers(texts: Sequence[str]) -> list[float] | None:
    """Convert texts to numbers; return None if one of them is not a finite number."""
    try:
        values = [float(text) for text in texts]
    except ValueError:
        return None
    return values if all(map(math.isfinite, values)) else None


def is_wide(values: Sequence[float]) -> bool:
    """Return whether positive values span such a wide range that a logarithmic scale suits them better."""
    return min(values) > 0 and max(values) / min(values) >= WIDE
