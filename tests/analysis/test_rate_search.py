"""The search for a rate on made curves: what a plateau, an edge, a tie and a diverged trial do to its winner."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from orthobench.analysis.rate_search import RATES, RateSearch, TrialCurve, search_rates, whole_runs
from orthobench.metric import Metric

TOTAL = 20
MSE, ACCURACY = Metric("mse", "min"), Metric("accuracy", "max", is_fraction=True)
ZERO = 1 / 6
"""The mean squared error of the best constant on the validation data."""
Curve = Callable[[float, Any], Sequence[float]]
"""Returns the values of a trial at its evaluations, by its rate and its value of the second axis."""


@dataclass
class Made:
    """The parts of a run that a search reads."""

    main_metric: Metric
    baselines: dict[str, float]
    status: str = "finished"
    total_iterations: int = TOTAL
    solved_at: int | None = None
    iterations: int = TOTAL


@dataclass
class Trained:
    """A search carried out on made curves.

    Attributes:
        asked: the share up to which each trial was asked to train, by rate and value of the second axis.
    """

    search: RateSearch
    asked: dict[tuple[float, Any], float] = field(default_factory=dict)

    @property
    def winner(self) -> tuple[float, Any]:
        assert self.search.winner is not None
        return self.search.winner.rate, self.search.winner.value


def carry_out(
    curve: Curve,
    values: Sequence[Any] = ("",),
    metric: Metric = MSE,
    zero: float = ZERO,
    diverged: Callable[[float], bool] = lambda rate: False,
    losses: Mapping[float, float] | None = None,
) -> Trained:
    """Train what the search asks for, until it has a winner.

    Args:
        losses: the cross-entropy of each rate's trials, whose best constant has 1.
    """
    trained: dict[tuple[float, Any], float] = {}
    while True:
        trials = []
        for rate in RATES:
            for value in values:
                share = trained.get((rate, value))
                if share is None:
                    trials.append(TrialCurve(rate, value))
                    continue
                whole = list(enumerate(curve(rate, value)))
                status = "diverged" if diverged(rate) else "finished" if share == 1 else "interrupted"
                baselines = {metric.name: 0.5, f"valid/{metric.name}": zero, "cross_entropy": 1.0}
                made: Any = Made(metric, baselines, status)
                shown = [each for each in whole if each[0] <= share * TOTAL]
                loss = [(at, losses[rate]) for at, _ in shown] if losses else []
                trials.append(TrialCurve(rate, value, made, shown, loss))
        search = search_rates(trials)
        if search.winner is not None:
            return Trained(search, trained)
        assert search.waiting
        trained |= {(trial.rate, trial.value): search.share for trial in search.waiting}


def drop(start: int, level: float, plateau: float = ZERO) -> list[float]:
    """Return a curve that leaves a plateau at an evaluation."""
    return [plateau if at < start else level for at in range(TOTAL + 1)]


def test_right_rate_survives_a_plateau():
    """It is the last to leave the plateau, where it looks the worst."""
    curves = {1e-3: drop(19, 0.15), 3e-3: drop(19, 0.149), 1e-2: drop(13, 0.03, 1.02 * ZERO), 3e-2: drop(19, 0.148)}
    done = carry_out(lambda rate, value: curves[rate])
    assert done.winner == (1e-2, "")
    assert set(done.asked.values()) == {1.0}  # no trial stops while all are on the plateau


def test_right_rate_survives_noise_on_a_plateau():
    """Whatever the noise before half of the iterations is, the rate that learns afterwards wins."""
    for seed in range(100):
        draw = random.Random(seed)
        best = draw.choice(RATES[2:6])
        noise = {rate: [ZERO * draw.uniform(0.97, 1.03) for _ in range(11)] for rate in RATES}
        ends = {rate: 0.02 if rate == best else draw.uniform(0.1, 0.15) for rate in RATES}
        done = carry_out(lambda rate, value, noise=noise, ends=ends: noise[rate] + [ends[rate]] * 10)
        assert done.winner == (best, "")


@pytest.mark.parametrize(("metric", "zero"), [(MSE, ZERO), (ACCURACY, 0.5)])
def test_worse_half_stops_once_the_best_has_left_the_plateau(metric, zero):
    share = {1e-3: 0.2, 3e-3: 0.9, 1e-2: 0.8, 3e-2: 0.1}

    def curve(rate, value):
        perfect = metric.perfect()
        return drop(9, zero + share[rate] * (perfect - zero), zero)

    done = carry_out(curve, metric=metric, zero=zero)
    assert done.asked == {(1e-3, ""): 0.5, (3e-3, ""): 1.0, (1e-2, ""): 1.0, (3e-2, ""): 0.5}
    assert (done.winner, done.search.edge) == ((3e-3, ""), "")


@pytest.mark.parametrize(
    ("best", "tried", "edge"),
    [
        (3e-2, (1e-1,), ""),
        (1e-1, (1e-1, 3e-1), ""),
        (3e-1, (1e-1, 3e-1), "highest"),
        (1e-3, (3e-4,), ""),
        (3e-4, (3e-4, 1e-4), ""),
        (1e-4, (3e-4, 1e-4), "lowest"),
        (1e-2, (), ""),
    ],
)
def test_rates_are_added_where_an_edge_wins(best, tried, edge):
    """The value falls towards the best rate by a factor at each step, so that no two rates have one score."""
    done = carry_out(lambda rate, value: drop(2, 0.01 + 0.01 * abs(RATES.index(rate) - RATES.index(best))))
    assert (done.winner, done.search.edge) == ((best, ""), edge)
    assert {rate for rate, _ in done.asked} - {*RATES[2:6]} == {*tried}


def test_added_rates_have_the_winner_s_value_of_the_second_axis():
    def curve(rate, value):
        return drop(2, 0.01 * (1 if value == "b" else 5) + 0.01 * abs(RATES.index(rate) - RATES.index(1e-1)))

    done = carry_out(curve, ("a", "b", "c"))
    assert done.winner == (1e-1, "b")
    assert [point for point in done.asked if point[0] > 3e-2] == [(1e-1, "b"), (3e-1, "b")]
    assert sum(share == 1 for (rate, _), share in done.asked.items() if rate <= 3e-2) == 6  # half of twelve


def test_equal_scores_go_to_the_better_neighbours():
    """The second rate has the lowest value, and next to it a rate that fails."""
    ends = dict.fromkeys(RATES, 0.15) | {1e-3: 0.02, 3e-3: 1e-4, 1e-2: 2e-4, 3e-2: 3e-4}
    assert carry_out(lambda rate, value: [ends[rate]] * (TOTAL + 1)).winner == (1e-2, "")
    ends[3e-2] = 0.05
    assert carry_out(lambda rate, value: [ends[rate]] * (TOTAL + 1)).winner == (3e-3, "")


def test_all_that_solve_the_task_before_half_of_the_iterations_compete_in_any_order():
    """Three of four do, which is more than the better half."""
    ended = {1e-3: 8, 3e-3: 6, 1e-2: 4, 3e-2: TOTAL // 2}
    trials = []
    for rate in RATES:
        if rate not in ended:
            trials.append(TrialCurve(rate, ""))
            continue
        solved = None if rate == 3e-2 else ended[rate]
        made: Any = Made(
            ACCURACY, {"accuracy": 0.5}, "finished" if solved else "interrupted", TOTAL, solved, ended[rate]
        )
        trials.append(TrialCurve(rate, "", made, [(ended[rate], 1.0 if solved else 0.999)]))
    for seed in range(20):
        random.Random(seed).shuffle(trials)
        search = search_rates(trials)
        assert search.winner is not None
        assert search.winner.rate == 1e-2


@pytest.mark.parametrize("first", [3e-3, 1e-2])
def test_of_two_that_solve_the_task_the_first_to_do_so_wins(first):
    """Next to both, one rate solves it and one is at the constant, whose noise in the third digit decides nothing."""
    ends = {1e-3: 0.497, 3e-3: 0.9995, 1e-2: 0.9985, 3e-2: 0.4965}
    made: dict[float, Any] = {rate: Made(ACCURACY, {"accuracy": 0.5}, iterations=TOTAL) for rate in ends}
    for rate in (3e-3, 1e-2):
        made[rate].solved_at = made[rate].iterations = 8 if rate == first else 12
    trials = [
        TrialCurve(rate, "", made[rate], [(made[rate].iterations, ends[rate])])
        if rate in ends
        else TrialCurve(rate, "")
        for rate in RATES
    ]
    search = search_rates(trials)
    assert search.winner is not None
    assert search.winner.rate == first


def test_loss_decides_where_the_metric_counts_no_answer():
    """No trial gets a whole word right, and one learns; without the cross-entropy the first rate would win."""
    fraction, nothing = Metric("sequence_accuracy", "max", is_fraction=True), [0.0] * (TOTAL + 1)
    losses = dict.fromkeys(RATES, 0.99) | {1e-2: 0.7, 3e-2: 0.9}
    done = carry_out(lambda rate, value: nothing, metric=fraction, zero=0.0, losses=losses)
    assert (done.winner, done.search.edge) == ((1e-2, ""), "")
    assert carry_out(lambda rate, value: nothing, metric=fraction, zero=0.0).winner != done.winner


@pytest.mark.parametrize("accuracy", [0.9, 0.54])
def test_loss_does_not_decide_where_the_metric_does(accuracy):
    """Past the plateau, and where the cross-entropy has not left it either."""
    ends = dict.fromkeys(RATES, 0.5) | {3e-3: accuracy}
    losses = dict.fromkeys(RATES, 0.995) | {1e-2: 0.5 if accuracy == 0.9 else 0.991}
    done = carry_out(lambda rate, value: [ends[rate]] * (TOTAL + 1), metric=ACCURACY, zero=0.5, losses=losses)
    assert done.winner == (3e-3, "")


def test_diverged_trial_loses():
    done = carry_out(lambda rate, value: drop(2, 1e-4 / rate), diverged=lambda rate: rate > 1e-2)
    assert (done.winner, done.search.edge) == ((1e-2, ""), "")


def test_score_is_that_of_the_constant_on_the_validation_data():
    made: Any = Made(MSE, {"mse": 0.2, "valid/mse": 0.1})
    assert TrialCurve(1e-3, "", made, [(TOTAL, 0.05)]).score() == pytest.approx(0.5)
    assert TrialCurve(1e-3, "", made, [(TOTAL, 0.15)]).score() == pytest.approx(-0.5)


def test_solved_trial_keeps_its_last_value():
    made: Any = Made(MSE, {}, solved_at=12)
    curve = [(at, value) for at, value in enumerate([*[0.1] * 12, 1e-4])]
    assert TrialCurve(1e-3, "", made, curve).end() == 1e-4
    assert math.isnan(TrialCurve(1e-3, "", Made(MSE, {}, "diverged"), curve).end())  # type: ignore[arg-type]


def test_whole_runs_count_what_a_search_spends():
    done = carry_out(lambda rate, value: drop(2, abs(math.log(rate / 2e-3)) / 100), ("a", "b"))
    spent = sum(share for (rate, _), share in done.asked.items() if rate in RATES[2:6])
    assert spent == whole_runs(8) == 6.0
