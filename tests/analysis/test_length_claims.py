"""Claims about a metric over length, on chosen scores: from length 1 on, one for each length."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.length_variants import variant

from orthobench.analysis.claims.claim import ClaimVerdict
from orthobench.analysis.claims.lengths import HoldsLengths, ReachesFarther

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
