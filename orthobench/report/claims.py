"""What papers say of their figures, checked on the runs behind them."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import pandas as pd

from orthobench.papers import Artifact, Claim, Paper
from orthobench.report.collect import Measured


@dataclass(frozen=True)
class Finding:
    """A claim and whether it held: every seed has to agree, and every variant that it is about has to be there."""

    claim: Claim
    held: bool | None
    reason: str

    @property
    def verdict(self) -> str:
        return "not measured" if self.held is None else "held" if self.held else "did not hold"


def check_claims(paper: Paper, artifact: Artifact, measured: Mapping[str, Measured]) -> list[Finding]:
    """The claims of a table or figure; `measured` has the variant of every experiment that was run, by identity."""
    return [_check(claim, paper, artifact, measured) for claim in artifact.claims]


def _check(claim: Claim, paper: Paper, artifact: Artifact, measured: Mapping[str, Measured]) -> Finding:
    about: list[Measured] = []
    others: list[Measured] = []
    missing = set()
    task_where = {
        name: value
        for name, value in claim.where.items()
        if any(name in experiment.task_settings for experiment in paper.experiments_in(artifact.name))
    }
    for experiment in paper.experiments_in(artifact.name):
        is_subject = experiment.model == claim.model and experiment.has(claim.where)
        compared = claim.check in ("first", "best") and (experiment.model in claim.others or not claim.others)
        is_other = not is_subject and compared and experiment.has(task_where)
        if not (is_subject or is_other):
            continue
        variant = measured.get(experiment.identity)
        if variant is None or not variant.finished:
            missing.add(experiment.label)
        else:
            (about if is_subject else others).append(replace(variant, label=experiment.label))
    if missing or not about or (claim.check in ("first", "best") and not others):
        return Finding(claim, None, f"needs {', '.join(sorted(missing)) or 'runs that no experiment describes'}")
    results = [CHECKS[claim.check](claim, variant, others) for variant in about]
    return Finding(claim, all(held for held, _ in results), "; ".join(reason for _, reason in results))


def _runs(variant: Measured, claim: Claim) -> list[pd.Series]:
    """Of every finished run, the values over iterations of the metric that a claim is about."""
    split, metric = ("probe", claim.metric) if claim.metric else ("test", variant.run.metric)
    rows = variant.series(split, metric)
    found = [rows[rows["run"] == run.id].set_index("iteration")["value"].astype(float) for run in variant.finished]
    return [series.sort_index() for series in found if len(series)]


def _limit(claim: Claim, variant: Measured) -> float:
    baseline = variant.run.baselines.get(variant.run.metric)
    return math.nan if baseline is None else claim.factor * float(baseline)


def _finals(variant: Measured, claim: Claim) -> list[float]:
    return [float(series.iloc[-1]) for series in _runs(variant, claim)]


def _ends_below(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    limit, finals = _limit(claim, variant), _finals(variant, claim)
    highest = max(finals, default=math.nan)
    return highest <= limit, f"ends at {highest:.3g} or below; limit {limit:.3g}"


def _ends_above(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    limit, finals = _limit(claim, variant), _finals(variant, claim)
    lowest = min(finals, default=math.nan)
    return lowest >= limit, f"ends at {lowest:.3g} or above; limit {limit:.3g}"


def _stays_above(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    limit = _limit(claim, variant)
    lowest = min((float(series.min()) for series in _runs(variant, claim)), default=math.nan)
    return lowest >= limit, f"lowest value {lowest:.3g}; limit {limit:.3g}"


def _reached(claim: Claim, variant: Measured) -> list[float]:
    """The iterations at which the runs first stand at or below the limit; infinite for those that never do."""
    limit = _limit(claim, variant)
    return [float(min(series.index[series <= limit], default=math.inf)) for series in _runs(variant, claim)]


def _first(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    own = max(_reached(claim, variant), default=math.inf)
    theirs = {other.label: min(_reached(claim, other), default=math.inf) for other in others}
    told = "; ".join(f"{model} {_iteration(at)}" for model, at in theirs.items())
    return math.isfinite(own) and own < min(theirs.values()), f"{variant.label} {_iteration(own)}, {told}"


def _iteration(at: float) -> str:
    return f"at iteration {at:.0f}" if math.isfinite(at) else "never"


def _best(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    sign = 1.0 if variant.run.goal == "min" else -1.0
    own = max(sign * value for value in _finals(variant, claim))
    theirs = {other.label: min(sign * value for value in _finals(other, claim)) for other in others}
    told = "; ".join(f"{label} {sign * value:.3g}" for label, value in theirs.items())
    return own < min(theirs.values()), f"{variant.label} {sign * own:.3g}, {told}"


def _grows(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    ratios = [float(series.iloc[-1]) / max(float(series.iloc[0]), 1e-300) for series in _runs(variant, claim)]
    smallest = min(ratios, default=math.nan)
    return smallest >= claim.factor, f"grows by {smallest:.3g}; at least {claim.factor:g}"


def _stays_below(claim: Claim, variant: Measured, others: list[Measured]) -> tuple[bool, str]:
    highest = max((float(series.max()) for series in _runs(variant, claim)), default=math.nan)
    return highest <= claim.factor, f"highest value {highest:.3g}; limit {claim.factor:g}"


CHECKS: dict[str, Callable[[Claim, Measured, list[Measured]], tuple[bool, str]]] = {
    "ends_below": _ends_below,
    "ends_above": _ends_above,
    "stays_above": _stays_above,
    "first": _first,
    "best": _best,
    "grows": _grows,
    "stays_below": _stays_below,
}
