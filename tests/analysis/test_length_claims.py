"""Claims about a metric over length, on chosen scores: from length 1 on, one for each length."""

from __future__ import annotations

import math
from types import SimpleNamespace
from typing import Any

import pytest
from support.length_variants import variant, with_horizons

from orthobench.analysis.by_length import last_by_length, length_metric
from orthobench.analysis.claims.claim import ClaimVerdict
from orthobench.analysis.claims.lengths import HoldsLengths, PredictsHorizon, ReachesFarther, Tracks
from orthobench.analysis.logged import Vectors

FARTHER = ReachesFarther(text="", model="rnn")


def holding(up_to: int = 2) -> HoldsLengths:
    return HoldsLengths(text="", model="rnn", up_to=up_to)


def lost(lost_from: int = 2) -> HoldsLengths:
    return HoldsLengths(text="", model="rnn", lost_from=lost_from)


def judge(claim: HoldsLengths | ReachesFarther, own: Any, *others: Any) -> ClaimVerdict:
    return claim.judge(own, others) if isinstance(claim, ReachesFarther) else claim.judge(own)


def holds(claim: HoldsLengths | ReachesFarther, own: SimpleNamespace, *others: SimpleNamespace) -> bool:
    share, text = judge(claim, own, *others)
    assert text
    return share.holds


@pytest.mark.parametrize(
    ("scores", "expected"), [([1.0, 0.9, 0.0], True), ([1.0, 0.89, 1.0], False), ([0.5, 1.0, 1.0], False)]
)
def test_scores_hold_up_to_a_length(scores, expected):
    assert holds(holding(), variant(scores)) is expected


def test_scores_do_not_hold_beyond_the_longest_test():
    assert holds(holding(4), variant([1.0] * 4))
    assert not holds(holding(5), variant([1.0] * 4))
    assert not holds(holding(5), variant([1.0] * 5, [1.0] * 4))


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.9, 0.1, 0.05], True), ([0.9, 0.5, 0.0], False), ([0.9, 0.1, 0.101], False), ([0.89, 0.0, 0.0], False)],
)
def test_scores_fall_by_a_length(scores, expected):
    assert holds(lost(), variant(scores)) is expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [
        ([1.0, 0.9, 0.5, 0.1], True),
        ([1.0, 0.89, 0.5, 0.1], False),
        ([1.0, 0.9, 0.5, 0.2], False),
        ([1.0, 0.9, 0.5], False),  # not tested at length 4
    ],
)
def test_scores_hold_up_to_one_length_and_fall_by_another(scores, expected):
    claim = HoldsLengths(text="", model="rnn", up_to=2, lost_from=4)
    assert holds(claim, variant(scores)) is expected


def test_reason_names_both_limits():
    claim = HoldsLengths(text="", model="rnn", up_to=2, lost_from=4)
    _, text = judge(claim, variant([1.0, 0.9, 0.5, 0.1], [1.0, 1.0, 0.5, 0.0]))
    assert text == "lowest score up to length 2: 0.9 to 1, limit 0.9; at most 0 to 0.1 from length 4 on, limit 0.1"
    _, text = judge(lost(), variant([1.0, 0.1]))
    assert text == "score at the shortest length: 1, limit 0.9; at most 0.1 from length 2 on, limit 0.1"


def test_share_of_seeds_or_pairs_decides():
    right, farther, wrong = [1.0, 1.0, 0.0], [1.0, 1.0, 1.0, 0.0], [1.0, 0.0, 0.0]

    def share(claim: HoldsLengths | ReachesFarther, own: SimpleNamespace, *others: SimpleNamespace) -> float:
        return judge(claim, own, *others)[0].value

    assert share(holding(), variant(right, right)) == 1
    assert share(holding(), variant(right, wrong)) == 0.5
    assert share(lost(), variant(wrong, right, right, right)) == 0.25
    assert share(FARTHER, variant(right, farther), variant(wrong)) == 1
    assert share(FARTHER, variant(right, wrong), variant(wrong)) == 0.75  # a tie is half
    assert share(FARTHER, variant(right), variant(farther, right)) == 0.25
    assert share(FARTHER, variant(farther), variant(right), variant(farther)) == 0.5  # the weaker one


def test_score_is_scaled_from_chance_to_one():
    """An accuracy of 0.94 is 0.88 of the way from 0.5 to 1; one of 0.54 is 0.08 of it."""
    assert not holds(holding(), variant([0.94, 0.94], chance=0.5))
    assert holds(holding(), variant([0.96, 0.96], chance=0.5))
    assert holds(lost(), variant([0.96, 0.54], chance=0.5))
    assert holds(holding(), variant([0.94, 0.94], chance=None))
    assert holds(holding(), variant([0.94, 0.94], chance=1.0))


def test_model_that_reaches_farther_has_a_score_at_greater_lengths():
    near, far, never = variant([1.0, 0.49, 0.4]), variant([1.0, 0.5, 0.4]), variant([1.0, 1.0, 1.0])
    assert holds(FARTHER, far, near)
    assert holds(FARTHER, never, far, near)
    assert not holds(FARTHER, near, far)
    assert not holds(FARTHER, near, near)
    assert not holds(FARTHER, far, near, never)


def test_solved_seed_counts_with_its_last_test():
    assert holds(holding(), variant([1.0, 1.0], [1.0, 1.0], solved=(0,)))
    assert not holds(holding(), variant([1.0, 0.0], [1.0, 1.0], solved=(0,)))


def test_only_finished_seeds_count():
    own = variant([1.0, 1.0], [0.0, 0.0])
    own.finished = own.runs[:1]
    assert holds(holding(), own)


def test_reason_has_the_range_over_seeds():
    seeds = variant([1.0, 0.0, 0.0], [1.0, 1.0, 0.0], label="own"), variant([1.0], label="whole"), variant(label="none")
    _, text = judge(FARTHER, *seeds)
    assert text == "first length with less than half of the score: own: 2 to 3; whole: none; none: nothing"


def test_lengths_and_metric_are_found_in_any_order():
    """Vectors are stored by name, and a metric's name may come after those of the lengths."""
    own = variant([1.0, 0.5])
    lengths, accuracy = (
        Vectors.of([*zip(each.run, each.epoch, each.iteration, (v[::-1] for v in each.values), strict=True)])
        for each in (own.traces["by_length/lengths"], own.traces["by_length/accuracy"])
    )
    trained = Vectors.of([(0, 0, 0, [1.0, 2.0])])
    own.traces = {"by_length/trained": trained, "by_length/lengths": lengths, "by_length/zeal": accuracy}
    assert length_metric(own) == "zeal"
    assert last_by_length(own)[0].to_dict() == {1: 1.0, 2: 0.5}
    assert last_by_length(own)[0].index.tolist() == [1, 2]


def test_runs_without_scores_hold_nothing():
    for claim in (holding(), lost(), FARTHER):
        assert not holds(claim, variant(), variant([1.0, 0.0]))
    assert not holds(FARTHER, variant([1.0, 1.0]), variant())
    assert not holds(lost(3), variant([1.0, 0.0]))


def tracks(**limits: int) -> Tracks:
    return Tracks(text="", model="gru", **limits)


@pytest.mark.parametrize(
    ("limits", "measured", "expected"),
    [
        ({}, 20.0, True),  # the longest training length
        ({}, 19.0, False),
        ({"up_to": 256}, math.inf, True),
        ({"up_to": 256}, 250.0, False),
        ({"up_to": 257}, math.inf, False),  # not tested
        ({"lost_by": 64}, 50.0, True),
        ({"lost_by": 64}, 64.0, False),
        ({"lost_by": 64}, math.inf, False),
        ({"lost_by": 64}, 12.0, False),  # it never had the state
        ({"lost_by": 300}, 50.0, False),  # not tested
    ],
)
def test_states_are_read_up_to_a_length(limits, measured, expected):
    assert holds(tracks(**limits), with_horizons("gru", (0.0, measured))) is expected


@pytest.mark.parametrize(
    ("predicted", "measured", "expected"),
    [
        (40.0, 80.0, True),
        (39.0, 80.0, False),
        (160.0, 80.0, True),
        (161.0, 80.0, False),
        (math.inf, math.inf, True),
        (100.0, math.inf, False),
        (200.0, math.inf, True),
        (10.0, 10.0, False),  # it does not fit the training lengths
        (0.0, 0.0, False),
    ],
)
def test_horizon_is_predicted_within_a_factor_of_two(predicted, measured, expected):
    claim = PredictsHorizon(text="", model="gru")
    assert holds(claim, with_horizons("gru", (predicted, measured))) is expected


def test_horizons_are_judged_by_the_share_of_seeds():
    share, text = tracks(up_to=100).judge(with_horizons("gru", (0.0, math.inf), (0.0, 60.0), (0.0, 120.0)))
    assert (share.value, share.seeds) == (pytest.approx(2 / 3), 3)
    assert "60 to beyond the longest test" in text
