"""Check claims about gradients and Jacobians: vectors that probes log before, during and after training."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.curve_claims import Check, Verdict, in_words
from orthobench.analysis.statistics import share_of_seeds
from orthobench.papers import Claim

HALF_ORDER = math.sqrt(10)


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


def _remembers(claim: Claim, variant: VariantData, others: list[VariantData], last: bool = True) -> Verdict:
    left = _left(claim, variant, last)
    share = share_of_seeds(part >= claim.factor for part in left)
    return share, f"{_range(left)} of it is left over the sequence; at least {claim.factor:g}"


def _forgets(claim: Claim, variant: VariantData, others: list[VariantData], last: bool = True) -> Verdict:
    left = _left(claim, variant, last)
    share = share_of_seeds(part <= claim.factor for part in left)
    return share, f"{_range(left)} of it is left over the sequence; at most {claim.factor:g}"


def _decays_to(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a share `factor` is left over the sequence, within half an order of magnitude."""
    return _near(claim, _left(claim, variant), "of it is left over the sequence")


def _fades_to(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a share `factor` of the last step's norm is left after training, within half an order of magnitude."""
    ends = [[float(vector[-1]) for vector in _vectors(variant, claim, last)] for last in (False, True)]
    left = [after / before if before else math.nan for before, after in zip(*ends, strict=True)]
    return _near(claim, left, "of the start's is left at the last step")


def _near(claim: Claim, left: list[float], words: str) -> Verdict:
    """Check shares that are left against `factor`."""
    share = share_of_seeds(claim.factor / HALF_ORDER <= part <= claim.factor * HALF_ORDER for part in left)
    return share, f"{_range(left)} {words}; the paper {claim.factor:g}, {_limits(claim.factor)}"


def _limits(level: float) -> str:
    return f"limits {level / HALF_ORDER:.2g} and {level * HALF_ORDER:.2g}"


def _range(numbers: list[float]) -> str:
    return in_words(numbers, ".2g")


def _forgets_more(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Compare how far back the gradient reaches; its share at the far end may be too small for a float."""
    before, after = ([_reach(norms) for norms in _vectors(variant, claim, last)] for last in (False, True))
    share = share_of_seeds(late < early for early, late in zip(before, after, strict=True))
    at_first, at_last = (in_words(steps, "d") for steps in (before, after))
    return share, f"a thousandth of it is left {at_first} steps back at the start, and {at_last} after training"


def _reach(norms: np.ndarray) -> int:
    """Count the steps, back from the last, in which the norms `[steps]` stay above a thousandth of the last."""
    small = norms[::-1] < 1e-3 * norms[-1]
    return int(small.argmax()) if small.any() else len(norms)


def _stands_out(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that in a map of gradients some input's column has `factor` times the mean of the median input's."""
    ratios = [_largest_column(vector) for vector in _vectors(variant, claim, last=True)]
    text = f"the largest input's gradient is {_range(ratios)} times the median's; at least {claim.factor:g}"
    return share_of_seeds(ratio >= claim.factor for ratio in ratios), text


def _largest_column(flat: np.ndarray) -> float:
    length = math.isqrt(len(flat))
    columns = [column[t:].mean() for t, column in enumerate(flat.reshape(length, length).T)]
    return float(max(columns) / np.median(columns))


def _near_one(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    farthest = [float(abs(vector - 1).max()) for vector in _vectors(variant, claim, last=True)]
    share = share_of_seeds(distance <= claim.factor for distance in farthest)
    return share, f"at most {_range(farthest)} from 1, over all steps; limit {claim.factor:g}"


GRADIENT_CHECKS: dict[str, Check] = {
    "remembers": _remembers,
    "remembers_at_start": partial(_remembers, last=False),
    "forgets": _forgets,
    "forgets_at_start": partial(_forgets, last=False),
    "decays_to": _decays_to,
    "fades_to": _fades_to,
    "forgets_more": _forgets_more,
    "stands_out": _stands_out,
    "near_one": _near_one,
}
