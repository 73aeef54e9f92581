"""Claims about a metric over length, on chosen scores: from length 1 on, one for each length."""

from __future__ import annotations

from types import SimpleNamespace

import pandas as pd
import pytest

from orthobench.analysis.claims import CHECKS
from orthobench.papers import Claim
from orthobench.store import Status


def variant(*seeds: list[float], chance: float | None = 0.0, solved: tuple[int, ...] = ()) -> SimpleNamespace:
    """A variant with these scores of its seeds at the last test, and none at the first; `solved` seeds stop before."""
    runs = [
        SimpleNamespace(id=number, status=Status.FINISHED, solved_at=5 if number in solved else None)
        for number in range(len(seeds))
    ]
    rows = []
    for run, values in zip(runs, seeds, strict=True):
        last = 5 if run.id in solved else 9
        for iteration, scores in ((0, [0.0] * len(values)), (last, values)):
            rows.append((run.id, "by_length/accuracy", 0, iteration, scores))
            rows.append((run.id, "by_length/lengths", 0, iteration, list(range(1, len(values) + 1))))
    traces = pd.DataFrame(rows, columns=["run", "name", "epoch", "iteration", "values"])
    run = SimpleNamespace(baselines={"accuracy": chance})
    return SimpleNamespace(run=run, runs=runs, finished=runs, traces=traces, label="a model")


def holds(check: str, own: SimpleNamespace, *others: SimpleNamespace, factor: float = 2.0) -> bool:
    claim = Claim(text="", check=check, model="rnn", factor=factor)
    result, text = CHECKS[check](claim, own, list(others))
    assert text
    return result


@pytest.mark.parametrize(
    ("scores", "expected"), [([1.0, 0.9, 0.0], True), ([1.0, 0.89, 1.0], False), ([0.5, 1.0, 1.0], False)]
)
def test_scores_hold_up_to_a_length(scores, expected):
    assert holds("holds_to", variant(scores)) is expected


@pytest.mark.parametrize(
    ("scores", "expected"),
    [([0.9, 0.1, 0.05], True), ([0.9, 0.5, 0.0], False), ([0.9, 0.1, 0.11], False), ([0.89, 0.0, 0.0], False)],
)
def test_scores_fall_by_a_length(scores, expected):
    assert holds("falls_by", variant(scores)) is expected


def test_every_seed_decides():
    right, wrong = [1.0, 1.0], [1.0, 0.0]
    assert holds("holds_to", variant(right, right))
    assert not holds("holds_to", variant(right, wrong))
    assert not holds("falls_by", variant(wrong, right))
    assert not holds("reaches_farther", variant(right, wrong), variant(wrong))
    assert not holds("reaches_farther", variant(right), variant(right, wrong))


def test_the_score_is_the_share_of_the_way_from_chance():
    """An accuracy of 0.94 is 0.88 of the way from 0.5 to 1; one of 0.54 is 0.08 of it."""
    assert not holds("holds_to", variant([0.94, 0.94], chance=0.5))
    assert holds("holds_to", variant([0.96, 0.96], chance=0.5))
    assert holds("falls_by", variant([0.96, 0.54], chance=0.5))
    assert holds("holds_to", variant([0.94, 0.94], chance=None))


def test_the_one_that_reaches_farther_has_a_score_at_greater_lengths():
    near, far, never = variant([1.0, 0.4, 0.4]), variant([1.0, 0.5, 0.4]), variant([1.0, 1.0, 1.0])
    assert holds("reaches_farther", far, near)
    assert holds("reaches_farther", never, far, near)
    assert not holds("reaches_farther", near, far)
    assert not holds("reaches_farther", near, near)
    assert not holds("reaches_farther", far, near, never)


def test_a_seed_that_solved_its_task_counts_with_its_last_test():
    assert holds("holds_to", variant([1.0, 1.0], [1.0, 1.0], solved=(0,)))
    assert not holds("holds_to", variant([1.0, 0.0], [1.0, 1.0], solved=(0,)))


def test_runs_without_scores_hold_nothing():
    for check in ("holds_to", "falls_by", "reaches_farther"):
        assert not holds(check, variant(), variant([1.0, 0.0]))
    assert not holds("reaches_farther", variant([1.0, 1.0]), variant())
    assert not holds("falls_by", variant([1.0, 0.0]), factor=3)
