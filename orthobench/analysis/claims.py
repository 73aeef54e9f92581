"""Check the claims of papers about their figures on the stored runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pandas as pd

from orthobench.analysis.conditions import VariantData, collect
from orthobench.analysis.dynamics import COMPUTATIONS
from orthobench.analysis.paper_tables import values
from orthobench.papers import Artifact, Claim, Paper, find_study
from orthobench.settings import merged_settings
from orthobench.store import Store

COMPARING = ("first", "best", "worst")


@dataclass(frozen=True)
class ClaimResult:
    """A claim, and whether it holds for every seed of every variant that it is about; None: not decided."""

    claim: Claim
    holds: bool | None
    reason: str

    @property
    def verdict(self) -> str:
        return "not decided" if self.holds is None else "held" if self.holds else "did not hold"


@dataclass(frozen=True)
class ClaimSubject:
    """A model with settings that a claim may be about, with its runs if there are any."""

    label: str
    model: str
    settings: Mapping[str, Any]
    task_settings: Mapping[str, Any]
    variant: VariantData | None
    selection: str = "last"

    def has(self, settings: Mapping[str, Any]) -> bool:
        return all(self.settings.get(name) == value for name, value in settings.items())


def check_claims(paper: Paper, artifact: Artifact, measured: Mapping[str, VariantData]) -> list[ClaimResult]:
    """Check the claims of a table or figure; `measured` has the variants of the experiments that ran, by identity."""
    subjects = [
        ClaimSubject(e.label, e.model, e.settings, e.task_settings, measured.get(e.identity), e.selection)
        for e in paper.experiments_in(artifact.name)
    ]
    return [_check(claim, subjects) for claim in artifact.claims]


def check_runs(artifact: Artifact, variants: Sequence[VariantData]) -> list[ClaimResult]:
    """Check the claims of a figure on the variants that it shows."""
    subjects = []
    for variant in variants:
        spec = variant.run.spec
        settings = merged_settings(spec)
        subjects.append(ClaimSubject(variant.label, variant.run.model, settings, spec["task_settings"], variant))
    return [_check(claim, subjects) for claim in artifact.claims]


def check_panels(artifact: Artifact, panels: Sequence[Mapping[str, Any]]) -> list[ClaimResult]:
    """Check the claims of a figure of trajectories."""
    courses = {panel["panel"]: np.array(panel["trajectories"]) for panel in panels}
    return [
        ClaimResult(claim, *PANEL_CHECKS[claim.check](claim, courses[claim.panel]))
        if claim.panel in courses
        else undecided(claim, f"has no panel {claim.panel}")
        for claim in artifact.claims
    ]


def check_small(store: Store, artifact: Artifact, keys: Sequence[str]) -> list[ClaimResult]:
    """Check the claims of an artifact's small version on the runs of these keys, or on its study's computation."""
    assert artifact.small is not None
    small = artifact.model_copy(update={"claims": artifact.small.claims or artifact.claims})
    study = find_study(artifact.study) if artifact.study else None
    if study and study.computation:
        return check_panels(small, COMPUTATIONS[study.computation]()["panels"])
    conditions = collect(store, store.runs(keys=keys))
    return check_runs(small, [variant for condition in conditions for variant in condition.variants])


def undecided(claim: Claim, reason: str) -> ClaimResult:
    return ClaimResult(claim, None, reason)


def _check(claim: Claim, subjects: Sequence[ClaimSubject]) -> ClaimResult:
    about: list[VariantData] = []
    others: list[VariantData] = []
    missing = set()
    task_where = {
        name: value for name, value in claim.where.items() if any(name in subject.task_settings for subject in subjects)
    }
    for subject in subjects:
        is_subject = subject.model == claim.model and subject.has(claim.where)
        compared = claim.check in COMPARING and (subject.model in claim.others or not claim.others)
        is_other = not is_subject and compared and subject.has(task_where)
        if not (is_subject or is_other):
            continue
        if subject.variant is None or not subject.variant.finished or subject.variant.diverged:
            missing.add(_missing_runs(subject))
        else:
            (about if is_subject else others).append(
                replace(subject.variant, label=subject.label, selection=subject.selection)
            )
    if missing or not about or (claim.check in COMPARING and not others):
        return undecided(claim, f"needs {', '.join(sorted(missing)) or 'runs that are not there'}")
    results = [CHECKS[claim.check](claim, variant, others) for variant in about]
    return ClaimResult(claim, all(holds for holds, _ in results), "; ".join(reason for _, reason in results))


def _missing_runs(subject: ClaimSubject) -> str:
    """Name a subject without the runs that a check needs."""
    if subject.variant is None or not subject.variant.diverged:
        return subject.label
    return f"{subject.label}, of which {subject.variant.diverged} of {len(subject.variant.runs)} runs diverged"


def _runs(variant: VariantData, claim: Claim) -> list[pd.Series]:
    """Return the claim's metric of every finished run, by iteration."""
    split, metric = ("probe", claim.metric) if claim.metric else ("test", variant.run.metric)
    rows = variant.series(split, metric)
    curves = [rows[rows["run"] == run.id].set_index("iteration")["value"].astype(float) for run in variant.finished]
    return [series.sort_index() for series in curves if len(series)]


def _limit(claim: Claim, variant: VariantData) -> float:
    return claim.factor * _baseline(variant)


def _baseline(variant: VariantData) -> float:
    baseline = variant.run.baselines.get(variant.run.metric)
    return math.nan if baseline is None else float(baseline)


def _finals(variant: VariantData, claim: Claim) -> list[float]:
    return [float(series.iloc[-1]) for series in _runs(variant, claim)]


def _selected(variant: VariantData, claim: Claim) -> list[float]:
    """Return the value of every finished run at the evaluation that the paper's rule selects."""
    if claim.metric:
        return _finals(variant, claim)
    return values(variant, variant.selection, variant.run.metric, "test")


def _ends_below(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    limit, finals = _limit(claim, variant), _finals(variant, claim)
    highest = max(finals, default=math.nan)
    return highest <= limit, f"ends at {highest:.3g} or below; limit {limit:.3g}"


def _ends_above(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    limit, finals = _limit(claim, variant), _finals(variant, claim)
    lowest = min(finals, default=math.nan)
    return lowest >= limit, f"ends at {lowest:.3g} or above; limit {limit:.3g}"


def _stays_above(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    limit = _limit(claim, variant)
    lowest = min((float(series.min()) for series in _runs(variant, claim)), default=math.nan)
    return lowest >= limit, f"lowest value {lowest:.3g}; limit {limit:.3g}"


def _reached(limit: float, claim: Claim, variant: VariantData) -> list[float]:
    """Return the first iteration of each run at or below the limit; infinity for a run that stays above it."""
    return [_first_below(series, limit) for series in _runs(variant, claim)]


def _first_below(series: pd.Series, limit: float) -> float:
    return float(min(series.index[series <= limit], default=math.inf))


def _first(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    own = max(_reached(_limit(claim, variant), claim, variant), default=math.inf)
    rivals = {other.label: min(_reached(_limit(claim, other), claim, other), default=math.inf) for other in others}
    text = "; ".join(f"{model} {_iteration(iteration)}" for model, iteration in rivals.items())
    return math.isfinite(own) and own < min(rivals.values()), f"{variant.label} {_iteration(own)}, {text}"


def _returns(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    """Check that the metric falls to the limit, and later rises to within a tenth of the baseline."""
    limit = _limit(claim, variant)
    later = [series[series.index > _first_below(series, limit)] for series in _runs(variant, claim)]
    if not all(len(series) for series in later):
        return False, f"does not come down to {limit:.3g} before its last test"
    back = min((float(series.max()) for series in later), default=math.nan)
    return back >= 0.9 * _baseline(variant), f"up to {back:.3g} after it first stands at {limit:.3g} or below"


def _iteration(at: float) -> str:
    return f"at iteration {at:.0f}" if math.isfinite(at) else "never"


def _late(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    """Check that the metric falls 5 % below the baseline after `factor` epochs or later, or never."""
    reached = min(_reached(0.95 * _baseline(variant), claim, variant), default=math.nan)
    passed = reached / variant.run.iterations_per_epoch
    moment = f"after {passed:.2g} epochs" if math.isfinite(passed) else "never"
    return passed >= claim.factor, f"5 % below the baseline {moment}"


def _best(claim: Claim, variant: VariantData, others: list[VariantData], worst: bool = False) -> tuple[bool, str]:
    """Check that every seed is better than all seeds of the others; with `worst`, worse."""
    sign = 1.0 if (variant.run.main_metric.goal == "min") != worst else -1.0
    own = max((sign * value for value in _selected(variant, claim)), default=math.nan)
    rivals = {
        other.label: min((sign * value for value in _selected(other, claim)), default=math.nan) for other in others
    }
    text = "; ".join(f"{label} {sign * value:.3g}" for label, value in rivals.items())
    return own < min(rivals.values()), f"{variant.label} {sign * own:.3g}, {text}"


def _grows(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    ratios = [float(series.iloc[-1]) / max(float(series.iloc[0]), 1e-300) for series in _runs(variant, claim)]
    smallest = min(ratios, default=math.nan)
    return smallest >= claim.factor, f"grows by {smallest:.3g}; at least {claim.factor:g}"


def _stays_below(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    highest = max((float(series.max()) for series in _runs(variant, claim)), default=math.nan)
    return highest <= claim.factor, f"highest value {highest:.3g}; limit {claim.factor:g}"


def _vectors(variant: VariantData, claim: Claim, last: bool) -> list[np.ndarray]:
    """Return the claim's vector of every finished run, as logged last or first."""
    rows = variant.traces[variant.traces["name"] == claim.metric]
    logged = [rows[rows["run"] == run.id].sort_values("iteration")["values"] for run in variant.finished]
    return [np.asarray(vectors.iloc[-1 if last else 0], dtype=float) for vectors in logged if len(vectors)]


def _left(claim: Claim, variant: VariantData, last: bool = True) -> list[float]:
    """Return the share of a gradient that survives the sequence, for every run.

    Of norms by step: the first over the last. Of a map of all states by all inputs: the mean over the largest quarter
    of lags, over the mean at lag 0.
    """
    return [
        _left_of_map(vector) if claim.metric.startswith("heat_map/") else float(vector[0] / vector[-1])
        for vector in _vectors(variant, claim, last)
    ]


def _left_of_map(flat: np.ndarray) -> float:
    length = math.isqrt(len(flat))
    by_lag = [np.diagonal(flat.reshape(length, length), -lag).mean() for lag in range(length)]
    return float(np.mean(by_lag[-max(1, length // 4) :]) / by_lag[0])


def _remembers(claim: Claim, variant: VariantData, others: list[VariantData], last: bool = True) -> tuple[bool, str]:
    least = min(_left(claim, variant, last), default=math.nan)
    return least >= claim.factor, f"{least:.2g} of it is left over the sequence; at least {claim.factor:g}"


def _forgets(claim: Claim, variant: VariantData, others: list[VariantData], last: bool = True) -> tuple[bool, str]:
    most = max(_left(claim, variant, last), default=math.nan)
    return most <= claim.factor, f"{most:.2g} of it is left over the sequence; at most {claim.factor:g}"


def _forgets_more(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    """Compare how far back the gradient reaches; its share at the far end may be too small for a float."""
    before, after = ([_reach(norms) for norms in _vectors(variant, claim, last)] for last in (False, True))
    holds = bool(after) and all(late < early for early, late in zip(before, after, strict=True))
    text = "; ".join(f"{early} and {late}" for early, late in zip(before, after, strict=True))
    return holds, f"steps back to a thousandth of it, at first and at last: {text}"


def _reach(norms: np.ndarray) -> int:
    """Count the steps, back from the last, in which the norms `[steps]` stay above a thousandth of the last."""
    small = norms[::-1] < 1e-3 * norms[-1]
    return int(small.argmax()) if small.any() else len(norms)


def _near_one(claim: Claim, variant: VariantData, others: list[VariantData]) -> tuple[bool, str]:
    farthest = max((float(abs(vector - 1).max()) for vector in _vectors(variant, claim, last=True)), default=math.nan)
    return farthest <= claim.factor, f"at most {farthest:.2g} from 1, over all steps; limit {claim.factor:g}"


CHECKS: dict[str, Callable[[Claim, VariantData, list[VariantData]], tuple[bool, str]]] = {
    "ends_below": _ends_below,
    "ends_above": _ends_above,
    "stays_above": _stays_above,
    "first": _first,
    "returns": _returns,
    "late": _late,
    "best": _best,
    "worst": partial(_best, worst=True),
    "grows": _grows,
    "stays_below": _stays_below,
    "remembers": _remembers,
    "remembers_at_start": partial(_remembers, last=False),
    "forgets": _forgets,
    "forgets_at_start": partial(_forgets, last=False),
    "forgets_more": _forgets_more,
    "near_one": _near_one,
}


def _distances(courses: np.ndarray) -> np.ndarray:
    """Return the final over the initial distance from the origin of trajectories `[starts, steps + 1, 2]`."""
    norms = np.linalg.norm(courses, axis=-1)
    ratios: np.ndarray = norms[:, -1] / norms[:, 0]
    return ratios


def _contracts(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    most = float(_distances(courses).max())
    return most <= claim.factor, f"ends at {most:.2g} of the distance it starts at, or less; limit {claim.factor:g}"


def _leaves(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    least = float(_distances(courses).min())
    return least > claim.factor, f"ends at {least:.3g} times the distance it starts at, or more; over {claim.factor:g}"


def _keeps_distance(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    ratios = _distances(courses)
    least, most = float(ratios.min()), float(ratios.max())
    holds = 1 / claim.factor <= least and most <= claim.factor
    return (
        holds,
        f"ends at {least:.2f} to {most:.2f} times the distance it starts at; within a factor of {claim.factor:g}",
    )


def _two_fixed_points(claim: Claim, courses: np.ndarray) -> tuple[bool, str]:
    moving = float(np.linalg.norm(courses[:, -1] - courses[:, -2], axis=-1).max())
    ends = np.unique(courses[:, -1].round(3), axis=0)
    return moving < 1e-6 and len(ends) == 2, f"{len(ends)} different ends; the last step moves by {moving:.1g}"


PANEL_CHECKS: dict[str, Callable[[Claim, np.ndarray], tuple[bool, str]]] = {
    "two_fixed_points": _two_fixed_points,
    "contracts": _contracts,
    "leaves": _leaves,
    "keeps_distance": _keeps_distance,
}
