"""Check claims about the scores over the length of the test sequences, at each run's last evaluation."""

from __future__ import annotations

import math

import pandas as pd

from orthobench.analysis.conditions import VariantData
from orthobench.analysis.curve_claims import Check, Verdict, in_words
from orthobench.analysis.over_length import HELD, as_scores, last_by_length
from orthobench.analysis.statistics import lower, lowest, share_of_pairs, share_of_seeds
from orthobench.papers import Claim

HALF, LOST = 0.5, 0.1


def _scores(variant: VariantData) -> list[pd.Series]:
    """Return the score by length of every finished run that has one."""
    measured = last_by_length(variant)
    return [as_scores(measured[run.id], variant) for run in variant.finished if run.id in measured]


def _holds_to(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a run has at least the score `HELD` at all lengths up to `factor`, and is tested that far."""
    lows = [
        float(score[score.index <= claim.factor].min()) if score.index[-1] >= claim.factor else math.nan
        for score in _scores(variant)
    ]
    share = share_of_seeds(score >= HELD for score in lows)
    return share, f"lowest score up to length {claim.factor:g}: {_range(lows)}, limit {HELD:g}"


def _falls_by(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a run has at least `HELD` at the shortest length, and at most `LOST` from `factor` on."""
    measured = _scores(variant)
    first = [float(score.iloc[0]) for score in measured]
    last = [float(score[score.index >= claim.factor].max()) for score in measured]
    share = share_of_seeds(start >= HELD and end <= LOST for start, end in zip(first, last, strict=True))
    text = f"score {_range(first)} at the shortest length, limit {HELD:g}"
    return share, f"{text}; at most {_range(last)} from length {claim.factor:g} on, limit {LOST:g}"


def _reaches_farther(claim: Claim, variant: VariantData, others: list[VariantData]) -> Verdict:
    """Check that a run keeps half of the score to a greater length than one of the others."""
    everyone = [variant, *others]
    own, *rivals = reaches = [[reach(score) for score in _scores(each)] for each in everyone]
    shares = [share_of_pairs(own, rival, lambda first, other: lower(other, first)) for rival in rivals]
    text = "; ".join(f"{each.label}: {_range(at)}" for each, at in zip(everyone, reaches, strict=True))
    return lowest(shares), f"first length with less than half of the score: {text}"


def reach(score: pd.Series) -> float:
    """Return the first length with a score below one half; infinity where there is none."""
    return float(min(score.index[score < HALF], default=math.inf))


def _range(numbers: list[float]) -> str:
    return in_words(numbers, not_finite="none")


LENGTH_CHECKS: dict[str, Check] = {"holds_to": _holds_to, "falls_by": _falls_by, "reaches_farther": _reaches_farther}
