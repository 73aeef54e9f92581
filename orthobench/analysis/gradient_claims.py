"""Check claims about gradients and Jacobians: vectors that probes log before, during and after training."""

from __future__ import annotations

import math
from functools import partial

import numpy as np

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.curve_claims import Check, Verdict
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
    least = min(_left(claim, variant, last), default=math.nan)
    return least >= claim.factor, f"{least:.2g} of it is left over the sequence; at least {claim.factor:g}"


def _forgets(claim: Claim, variant: VariantData, others: list[VariantData], last: bool = True) -> Verdict:
    most = max(_left(claim, variant, last), default=math.nan)
    return most <= claim.factor, f"{most:.2g} of it is left over the sequence; at most {claim.factor:g}"


def _decays_to(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a share `factor` is left, within half an order of magnitude."""
    left = _left(claim, variant)
    words = f"{_range(left)} of it is left over the sequence"
    return _at_level(left, claim.factor), f"{words}; the paper {claim.factor:g}, {_limits(claim.factor)}"


def _level(claim: Claim, variant: VariantData, others: list[VariantData], last: bool, step: int | None) -> Verdict:
    """Check that norms are `factor` within half an order of magnitude: at one step, or at all steps."""
    vectors = _vectors(variant, claim, last)
    steps = slice(None) if step is None else slice(step, step + 1 or None)
    norms = [float(norm) for vector in vectors for norm in vector[steps]]
    return _at_level(norms, claim.factor), f"{_range(norms)}; the paper {claim.factor:g}, {_limits(claim.factor)}"


def _at_level(numbers: list[float], level: float) -> bool:
    return bool(numbers) and all(level / HALF_ORDER <= value <= level * HALF_ORDER for value in numbers)


def _limits(level: float) -> str:
    return f"limits {level / HALF_ORDER:.2g} and {level * HALF_ORDER:.2g}"


def _range(numbers: list[float]) -> str:
    return f"{min(numbers):.2g} to {max(numbers):.2g}" if numbers else "nothing"


def _forgets_more(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Compare how far back the gradient reaches; its share at the far end may be too small for a float."""
    before, after = ([_reach(norms) for norms in _vectors(variant, claim, last)] for last in (False, True))
    holds = bool(after) and all(late < early for early, late in zip(before, after, strict=True))
    text = "; ".join(f"{early} and {late}" for early, late in zip(before, after, strict=True))
    return holds, f"steps back to a thousandth of it, at first and at last: {text}"


def _reach(norms: np.ndarray) -> int:
    """Count the steps, back from the last, in which the norms `[steps]` stay above a thousandth of the last."""
    small = norms[::-1] < 1e-3 * norms[-1]
    return int(small.argmax()) if small.any() else len(norms)


def _stands_out(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that in a map of gradients some input's column has `factor` times the mean of the median input's."""
    ratios = [_largest_column(vector) for vector in _vectors(variant, claim, last=True)]
    least = min(ratios, default=math.nan)
    return (
        least >= claim.factor,
        f"the largest input's gradient is {least:.2g} times the median's; at least {claim.factor:g}",
    )


def _largest_column(flat: np.ndarray) -> float:
    length = math.isqrt(len(flat))
    columns = [column[t:].mean() for t, column in enumerate(flat.reshape(length, length).T)]
    return float(max(columns) / np.median(columns))


def _near_one(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    farthest = max((float(abs(vector - 1).max()) for vector in _vectors(variant, claim, last=True)), default=math.nan)
    return farthest <= claim.factor, f"at most {farthest:.2g} from 1, over all steps; limit {claim.factor:g}"


GRADIENT_CHECKS: dict[str, Check] = {
    "remembers": _remembers,
    "remembers_at_start": partial(_remembers, last=False),
    "forgets": _forgets,
    "forgets_at_start": partial(_forgets, last=False),
    "decays_to": _decays_to,
    "level_at_start": partial(_level, last=False, step=None),
    "level_of_first_step": partial(_level, last=True, step=0),
    "level_of_last_step": partial(_level, last=True, step=-1),
    "forgets_more": _forgets_more,
    "stands_out": _stands_out,
    "near_one": _near_one,
}
