"""The facts are the same everywhere, and the answers are those of the keys."""

from __future__ import annotations

import math

import pytest
import torch

from orthobench.tasks.memorization import Memorization, MemorizationSettings

CPU = torch.device("cpu")


def make(seed=0, **values) -> Memorization:
    sizes = {"facts": 20, "sequence_length": 10, "train_size": 400, "test_size": 100, "validation_size": 100}
    return Memorization(MemorizationSettings.read(sizes | values), seed, CPU)


def facts_in(split) -> set[tuple[int, int]]:
    """The pairs of the token before each question, and its answer."""
    batch = split.batch(torch.arange(len(split)))
    found = set()
    for tokens, places, answers in zip(
        batch.inputs.T.tolist(), batch.positions.T.tolist(), batch.targets.T.tolist(), strict=True
    ):
        assert places == [1, 3, 5, 7, 9]
        assert [tokens[place] for place in places] == [40] * 5
        found |= {(tokens[place - 1], answer) for place, answer in zip(places, answers, strict=True)}
    return found


def test_all_splits_have_the_same_facts_one_to_one():
    task = make()
    facts = facts_in(task.train)
    assert {key for key, _ in facts} == set(range(20))
    assert {value for _, value in facts} == set(range(20, 40))
    assert len(facts) == 20
    assert facts_in(task.test) | facts_in(task.validation) == facts
    assert facts_in(make(1).train) != facts


def test_a_constant_scores_the_baseline():
    task = make(test_size=4000)
    batch = task.test.batch(torch.arange(4000))
    guess = torch.full((5, 4000, 41), -torch.inf, dtype=torch.float64)
    guess[..., 20:40] = 0
    guess[..., 25] = 1e-9
    baselines = Memorization.baselines(MemorizationSettings(facts=20))
    measured = {name: float(total) / weight for name, (total, weight) in task.measure(guess, batch.targets).items()}
    assert baselines == {"accuracy": 1 / 20, "cross_entropy": math.log(20)}
    assert measured["accuracy"] == pytest.approx(1 / 20, abs=6 * (1 / 20 / 20_000) ** 0.5)
    assert measured["cross_entropy"] == pytest.approx(math.log(20))


def test_sizes_are_the_programs():
    values = MemorizationSettings()
    assert (values.facts, values.sequence_length, values.train_size) == (127, 32, 256)
