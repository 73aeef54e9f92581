"""The search for a learning rate: which trials train on, which rates are added, and which trial wins.

The trials are the points of a grid: the rates, times the values of a second axis (`Model.second_axis`). All of them
train for half of their iterations. If the best one has left the plateau by then, the better half trains to the end.
Otherwise all do, because on a plateau the differences are noise, and the right rate is often the last one to leave it.
If the winner has the highest or the lowest rate, the next rate beyond is tried as well, with the same value of the
second axis, at most twice. If no trial leaves the plateau, but the cross-entropy does, it decides, because a metric
that counts only whole answers is the same for a trial that learns and for one that does not.

The decision follows from the trials' validation curves alone. So the same curves give the same winner, whatever
interrupted the search, and a reader of the database can repeat it.

optuna is not used, because its pruners compare a trial with the others at the same step and know no plateau, and its
samplers propose points that do not depend on an edge. What would remain of it here is storage, which the runs are.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from orthobench.analysis.scores import LOWEST, score_of
from orthobench.analysis.statistics import curve_end
from orthobench.metric import VALIDATION, Metric
from orthobench.store import Run, Status

JUDGE = "valid"
"""The split whose curves decide."""
RATES = (1e-4, 3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1, 3e-1)
"""All rates of a search. The factor of about 3 changes a result by more than another seed does."""
FIRST = RATES[2:6]
"""The rates with which a search begins. The others are added where an edge wins."""
EXTENSIONS = 2
"""The most rates that are added."""
HALF = 0.5
"""The share of the iterations after which the worse half of the trials stops."""
PLATEAU = 0.1
"""The score that the best trial must have by then, because below it all are near the best constant."""
LOSS = Metric("cross_entropy", "min")
"""What decides between trials on the plateau, where a task measures it."""

Edge = Literal["highest", "lowest", ""]
"""Which of the rates tried a winner has; beyond the highest or the lowest one may be a better rate."""


@dataclass(frozen=True)
class TrialCurve:
    """A trial's run and its validation curves, as (iteration, value); without a run, it has not started.

    Attributes:
        rate: one of `RATES`.
        value: the value of the second axis.
        curve: of the main metric.
        loss: of `LOSS`; empty if the task does not measure it.
    """

    rate: float
    value: str
    run: Run | None = None
    curve: Sequence[tuple[int, float]] = field(default=(), repr=False)
    loss: Sequence[tuple[int, float]] = field(default=(), repr=False)

    def has_reached(self, share: float) -> bool:
        """Return whether the trial has a value at this share of its iterations, or has ended."""
        if self.run is None:
            return False
        if Status(self.run.status).is_final:
            return True
        reached = max((iteration for iteration, _ in self.curve), default=0)
        return share < 1 and reached >= share * self.run.total_iterations

    def end(self, share: float = 1.0, by_loss: bool = False) -> float:
        """Return the end of a curve up to this share; NaN if the trial diverged."""
        if self.run is None or self.run.status == Status.DIVERGED:
            return math.nan
        curve, limit = self.loss if by_loss else self.curve, share * self.run.total_iterations
        inside = next((number for number, (at, _) in enumerate(curve, 1) if at >= limit), len(curve))
        own = [value for _, value in curve[:inside]]
        end = curve_end(own[-1:] if self.run.solved_at is not None else own)
        return math.nan if end is None else end.value

    def cost(self, share: float = 1.0, by_loss: bool = False) -> float:
        """Return the end as a number of which the lowest is the best; infinity if the trial diverged."""
        end = self.end(share, by_loss)
        if math.isnan(end) or self.run is None:
            return math.inf
        return (LOSS if by_loss else self.run.main_metric).sign * end

    def score(self, share: float = 1.0, by_loss: bool = False) -> float | None:
        """Return the score next to the best constant on the same validation data; None if it has none."""
        if self.run is None:
            return None
        metric, end = LOSS if by_loss else self.run.main_metric, self.end(share, by_loss)
        zero = self.run.baselines.get(VALIDATION + metric.name, self.run.baselines.get(metric.name))
        perfect = metric.perfect([] if math.isnan(end) else [end], zero)
        if zero is None or perfect is None:
            return None
        return LOWEST if math.isnan(end) else score_of(end, zero, perfect)


@dataclass(frozen=True)
class RateSearch:
    """A search at its present state.

    Attributes:
        share: the share of the iterations up to which the waiting trials train.
        waiting: the trials that have to train next; they may not have started.
        winner: the trial that won; None while trials wait.
        edge: whether the winner has the highest or the lowest rate tried with its value of the second axis.
    """

    share: float
    waiting: list[TrialCurve]
    winner: TrialCurve | None = None
    edge: Edge = ""


def search_rates(trials: Sequence[TrialCurve]) -> RateSearch:
    """Return the state of a search, which does not depend on the order of the trials.

    Args:
        trials: all points that may be tried, each value of the second axis with all `RATES`; those that have not
            started have no run.
    """
    first = [trial for trial in trials if trial.rate in FIRST]
    if waiting := [trial for trial in first if not trial.has_reached(HALF)]:
        return RateSearch(HALF, waiting)
    chosen = first
    scores = [score for trial in first if (score := trial.score(HALF)) is not None]
    if max(scores, default=1.0) > PLATEAU:
        ranked = sorted(first, key=lambda trial: (trial.cost(HALF), trial.rate, trial.value))
        half = math.ceil(len(first) / 2)
        # More than half may have solved the task by then, and they have nothing left to train.
        chosen = ranked[:half] + [trial for trial in ranked[half:] if trial.run and trial.run.solved_at is not None]
    for extension in range(EXTENSIONS + 1):
        if waiting := [trial for trial in chosen if not trial.has_reached(1.0)]:
            return RateSearch(1.0, waiting)
        winner = _best(chosen, trials)
        tried = [RATES.index(trial.rate) for trial in (*first, *chosen) if trial.value == winner.value]
        place = RATES.index(winner.rate)
        edge: Edge = "highest" if place == max(tried) else "lowest" if place == min(tried) else ""
        beyond = {"highest": place + 1, "lowest": place - 1}.get(edge)
        added = [trial for trial in trials if trial.value == winner.value and RATES.index(trial.rate) == beyond]
        if not added or extension == EXTENSIONS:
            break
        chosen = [*chosen, *added]
    return RateSearch(1.0, [], winner, edge)


def _best(contenders: Sequence[TrialCurve], trials: Sequence[TrialCurve]) -> TrialCurve:
    """Return the best of the trials that reached the end.

    Of several with the same score in whole percents, as tables show it, the one with the better neighbours wins: its
    score depends less on the rate. Neighbours are the next rates with the same value of the second axis. If these have
    the same score too, the trial that solved the task first wins, because smaller differences are noise. Then the
    values decide.
    """

    def percents(trial: TrialCurve, by_loss: bool) -> int | None:
        score = trial.score(by_loss=by_loss)
        return None if score is None else round(100 * score)

    best = min(contenders, key=TrialCurve.cost)
    shown = percents(best, by_loss=False)
    if shown is None:
        return best
    losses = [each for trial in contenders if trial.loss and (each := percents(trial, by_loss=True)) is not None]
    by_loss = shown <= 100 * PLATEAU and max(losses, default=shown) > shown

    def cost(trial: TrialCurve) -> float:
        return trial.cost(by_loss=by_loss)

    def order(trial: TrialCurve) -> tuple[float | str, ...]:
        place = RATES.index(trial.rate)
        own = (each for each in trials if each.run and each.value == trial.value)
        near = [each for each in own if abs(RATES.index(each.rate) - place) == 1]
        scores = [-(percents(each, by_loss) or 0) for each in near]
        solved_at = trial.run.solved_at if trial.run else None
        solved = math.inf if solved_at is None else solved_at
        return _middle(scores), solved, _middle([*map(cost, near)]), cost(trial), trial.rate, trial.value

    most = percents(min(contenders, key=cost), by_loss)
    return min((trial for trial in contenders if percents(trial, by_loss) == most), key=order)


def _middle(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.inf


def whole_runs(trials: int) -> float:
    """Return how many whole runs a search that begins with this many trials takes, without the rates it may add."""
    return HALF * trials + (1 - HALF) * math.ceil(trials / 2)
