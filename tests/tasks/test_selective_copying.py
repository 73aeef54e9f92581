"""The labels read off token by token, the distribution of places and tokens, and the baseline."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.tasks.selective_copying import SelectiveCopying, SelectiveCopyingSettings

CPU = torch.device("cpu")


def make(seed=0, **values) -> SelectiveCopying:
    sizes = {"sequence_length": 12, "copied": 3, "vocabulary": 6, "train_size": 100, "test_size": 100}
    return SelectiveCopying(SelectiveCopyingSettings.read(sizes | values), seed, CPU)


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 2**62), copied=st.integers(1, 8), more=st.integers(1, 20), vocabulary=st.integers(4, 20))
def test_answers_are_the_tokens_between_the_blanks(seed, copied, more, vocabulary):
    steps = copied + more
    task = make(seed, sequence_length=steps, copied=copied, vocabulary=vocabulary)
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(10))
        assert batch.inputs.shape == (steps + copied, 10)
        for tokens, answers in zip(batch.inputs.T.tolist(), batch.targets.T.tolist(), strict=True):
            context, markers = tokens[:steps], tokens[steps:]
            assert markers == [vocabulary - 1] * copied
            assert [token for token in context if token != 0] == answers
            assert all(1 <= token <= vocabulary - 2 for token in answers)
        assert (batch.positions == torch.arange(steps, steps + copied).unsqueeze(1)).all()


def test_places_and_tokens_are_uniform():
    inputs = make(sequence_length=6, train_size=20_000).train.batch(torch.arange(20_000)).inputs[:6]
    places = Counter(tuple((column != 0).nonzero().flatten().tolist()) for column in inputs.T)
    assert places.keys() == set(combinations(range(6), 3))
    assert all(abs(times - 1000) < 6 * 1000**0.5 for times in places.values())
    tokens = torch.bincount(inputs.flatten(), minlength=5)[1:5]
    assert ((tokens - 15_000).abs() < 6 * 15_000**0.5).all()


def test_a_constant_scores_the_baseline_and_the_answers_score_one():
    task = make(sequence_length=20, copied=4, test_size=4000)
    batch = task.test.batch(torch.arange(4000))
    guess = torch.full((4, 4000, 6), -torch.inf, dtype=torch.float64)
    guess[..., 1:5] = 0
    guess[..., 2] = 1e-9
    baselines = SelectiveCopying.baselines(SelectiveCopyingSettings(vocabulary=6))
    assert baselines == {"accuracy": 0.25, "cross_entropy": math.log(4)}
    measured = {name: float(total) / weight for name, (total, weight) in task.measure(guess, batch.targets).items()}
    assert measured["accuracy"] == pytest.approx(0.25, abs=6 * (0.1875 / 16_000) ** 0.5)
    assert measured["cross_entropy"] == pytest.approx(math.log(4))
    assert task.loss(guess, batch.targets).item() == pytest.approx(math.log(4))
    right = 100 * torch.nn.functional.one_hot(batch.targets, 6).double()
    total, weight = task.measure(right, batch.targets)["accuracy"]
    assert float(total) / weight == SelectiveCopying.main_metric().perfect() == 1


def test_longer_tests_copy_as_many_tokens():
    task = make(longer_tests=True)
    for multiple in (2, 4, 8):
        batch = task.longer_tests[multiple].batch(torch.arange(5))
        assert batch.inputs.shape == (12 * multiple + 3, 5)
        assert ((batch.inputs[: 12 * multiple] != 0).sum(0) == 3).all()


def test_protocol_is_the_papers_and_too_many_tokens_are_refused():
    values = SelectiveCopyingSettings()
    assert (values.sequence_length, values.copied, values.vocabulary) == (4096, 16, 16)
    assert values.train_size == 64 * 400_000
    with pytest.raises(UsageError, match="copied=13 is more than sequence_length=12"):
        SelectiveCopyingSettings.read({"sequence_length": 12, "copied": 13})
