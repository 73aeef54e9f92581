"""Successive halving on made curves: which trials go on, what a search costs, and what a diverged trial is worth."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass

import pytest

from orthobench.analysis.halving import TrialCurve, full_runs, halve

TOTAL = 20


@dataclass
class Made:
    """The parts of a run that halving reads."""

    status: str = "finished"
    total_iterations: int = TOTAL
    solved_at: int | None = None


def trial(number: int, values, status: str = "finished", solved_at: int | None = None) -> TrialCurve:
    return TrialCurve(number, Made(status, solved_at=solved_at), list(enumerate(values)))


def flat(number: int, value: float, upto: int = TOTAL, status: str = "finished") -> TrialCurve:
    return trial(number, [value] * (upto + 1), status)


def numbers(trials) -> list[int]:
    return [each.number for each in trials]


@pytest.mark.parametrize("sign", [1.0, -1.0])
def test_better_half_passes_each_rung(sign):
    values = [3, 1, 4, 1.5, 9, 2, 6, 5]
    state = halve([flat(number, sign * value) for number, value in enumerate(values)], sign)
    assert [numbers(each) for each in state.contenders] == [[*range(8)], [0, 1, 3, 5], [1, 3]]
    assert (state.winner.number, state.waiting, state.share) == (1, [], 1.0)


def test_winner_is_that_of_a_literal_transcription():
    """Sort at 25 %, keep four; sort at 50 %, keep two; sort at the end. A rung reads the median of the last tenth."""
    draw = random.Random(0)
    for _ in range(50):
        curves = [[draw.random() for _ in range(TOTAL + 1)] for _ in range(8)]
        left = [*range(8)]
        for rung, count in ((5, 4), (10, 2), (20, 1)):

            def end(number, rung=rung, curves=curves):
                own = curves[number][: rung + 1]
                last = own[-1:] if len(own) < 10 else sorted(own[-3:])[1:2]
                return last[0]

            left = sorted(left, key=end)[:count]
        state = halve([trial(number, curve) for number, curve in enumerate(curves)], 1.0)
        assert [state.winner.number] == left


def test_no_later_value_decides_an_earlier_rung():
    early = [1.0] * 6 + [math.nan] * 15
    late = [2.0] * 6 + [0.0] * 15
    trials = [trial(0, early), *(flat(n, 1.5) for n in range(1, 4)), *(trial(n, late) for n in range(4, 8))]
    state = halve(trials, 1.0)
    assert numbers(state.contenders[1]) == [0, 1, 2, 3]


def test_search_waits_for_all_contenders_of_a_rung():
    paused = [flat(number, number, upto=5, status="interrupted") for number in range(7)]
    state = halve([*paused, TrialCurve(7)], 1.0)
    assert (numbers(state.waiting), state.share, state.winner) == ([7], 0.25, None)
    state = halve([*paused, flat(7, 7.0, upto=4, status="interrupted")], 1.0)
    assert numbers(state.waiting) == [7]
    state = halve([*paused, flat(7, 7.0, upto=5, status="interrupted")], 1.0)
    assert (numbers(state.waiting), state.share) == ([0, 1, 2, 3], 0.5)


def test_diverged_trials_are_the_worst_and_equal_ones_keep_their_order():
    trials = [flat(number, 0.0, status="diverged") for number in range(6)] + [flat(6, 1.0), flat(7, 1.0)]
    state = halve(trials, 1.0)
    assert [numbers(each) for each in state.contenders[1:]] == [[0, 1, 6, 7], [6, 7]]
    assert state.winner.number == 6
    assert halve([flat(number, 0.0, status="diverged") for number in range(8)], 1.0).winner.number == 0


def test_solved_trial_keeps_its_last_value():
    solved = trial(7, [9.0, 9.0, 9.0, 0.1], solved_at=3)
    state = halve([*(flat(number, 0.5) for number in range(7)), solved], 1.0)
    assert state.winner.number == 7
    assert state.waiting == []


@pytest.mark.parametrize(("trials", "runs"), [(8, 4.0), (16, 8.0), (10, 10 / 4 + 5 / 4 + 3 / 2)])
def test_cost_of_a_search(trials, runs):
    """Eight trials to a quarter, four to a half and two to the end are four whole runs."""
    assert full_runs(trials) == pytest.approx(runs)
    spent, state = 0.0, halve([flat(number, number) for number in range(trials)], 1.0)
    for share, before, contenders in zip((0.25, 0.5, 1), (0, 0.25, 0.5), state.contenders, strict=True):
        spent += (share - before) * len(contenders)
    assert spent == pytest.approx(runs)
