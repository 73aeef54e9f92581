"""Scores: how far a result gets from the baseline, 0, to a perfect one, 1; tables show them times 100."""

from __future__ import annotations

import math
from collections.abc import Sequence

from orthobench.store import Run

SOLVED = 0.95
"""The score from which a run solves its task, wherever the word stands: in counts of seeds, curves and comparisons.

Above it a smaller error says nothing about the cell, because runs differ in how long they went on after they had the
answer: of the 35 tuned cells on adding with T = 100, 26 had at least 95, with squared errors between 1.5e-6 and 7e-3,
where guessing has 0.167. So models that solve a task in every seed "both solve it", and no test tells them apart.
"""

LEARNT = 0.1
"""The score below which a model learns nothing: it is not called the best, and not compared with another such one."""

LOWEST = -1.0
"""The score of a diverged run, and of values that are as far beyond the baseline as a perfect value is before it."""


def score_of(value: float, baseline: float, perfect: float) -> float:
    """Return how far a value gets from the baseline, 0, to a perfect value, 1; below 0 it is worse than the baseline.

    If the baseline is perfect already, only a perfect value has the score 1. No score is below `LOWEST`, because one
    bad run of a metric without a bound would outweigh all others.
    """
    if not math.isfinite(value):
        return LOWEST
    if baseline == perfect:
        return float(value == perfect)
    return min(max((value - baseline) / (perfect - baseline), LOWEST), 1.0)


def percents(low: float, high: float) -> str:
    """Return a range of scores in whole percents: "86–92", or "-10 to -1", because a dash would read as a sign."""
    ends = round(100 * low), round(100 * high)
    return (" to " if min(ends) < 0 else "–").join(map(str, ends))


def scores_of(ends: Sequence[tuple[Run, float]]) -> list[float]:
    """Return the score of each run's value of the main metric, next to the baseline of its own test sequences.

    Without a perfect value, or if a run has no baseline, there are none.
    """
    baselines = [run.baselines[run.metric] for run, _ in ends if run.metric in run.baselines]
    values = [value for _, value in ends]
    if not ends or len(baselines) < len(ends):
        return []
    perfect = ends[0][0].main_metric.perfect([*values, *baselines])
    if perfect is None:
        return []
    return [score_of(value, baseline, perfect) for value, baseline in zip(values, baselines, strict=True)]


def solving(ends: Sequence[tuple[Run, float]]) -> list[bool]:
    """Return whether each run, with its value of the main metric, solves its task; empty if none can.

    None can if results of the task are graded, as on MNIST, because a better one always counts there.
    """
    if ends and ends[0][0].main_metric.is_graded:
        return []
    return [score >= SOLVED for score in scores_of(ends)]


def all_solve(ends: Sequence[tuple[Run, float]]) -> bool:
    """Return whether there are runs, each with its value of the main metric, and all of them solve their task."""
    solved = solving(ends)
    return bool(solved) and all(solved)
