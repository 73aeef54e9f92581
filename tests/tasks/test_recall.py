"""Each sequence read token by token, as its definition says; how keys, sizes and noise are drawn; the baselines."""

from __future__ import annotations

import math
from collections import Counter
from itertools import groupby

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.tasks._answers import IGNORED
from orthobench.tasks.recall import Recall, RecallSettings

CPU = torch.device("cpu")


def make(seed=0, **values) -> Recall:
    return Recall(RecallSettings.read({"train_size": 100, "test_size": 100} | values), seed, CPU)


def pairs_of(tokens: list[int], keys: int, values: int) -> list[tuple[int, tuple[int, ...], tuple[int, ...]]]:
    """Split tokens into pairs: where the value begins, the key and the value; noise is left out."""
    kinds = ["key" if token < keys else "value" if token < keys + values else "noise" for token in tokens]
    runs = [(kind, [place for place, _ in run]) for kind, run in groupby(enumerate(kinds), key=lambda each: each[1])]
    known = [(kind, places) for kind, places in runs if kind != "noise"]
    assert [kind for kind, _ in known] == ["key", "value"] * (len(known) // 2)
    return [
        (answer[0], tuple(tokens[place] for place in key), tuple(tokens[place] for place in answer))
        for (_, key), (_, answer) in zip(known[::2], known[1::2], strict=True)
    ]


def questions_in(batch, column: int, keys: int, values: int) -> tuple[dict[int, int], dict[int, int]]:
    """The answers of a sequence by step: as its pairs say them, and as the batch has them."""
    steps = int(batch.lengths[column])
    given = {
        int(place): int(answer)
        for place, answer in zip(batch.positions[:, column], batch.targets[:, column], strict=True)
        if answer != IGNORED
    }
    assert len(given) == int((batch.targets[:, column] != IGNORED).sum())
    # The last answer is the only token that the inputs lack.
    tokens = [*batch.inputs[:steps, column].tolist(), given[steps - 1]]
    told: dict[tuple[int, ...], tuple[int, ...]] = {}
    said: dict[int, int] = {}
    for start, key, value in pairs_of(tokens, keys, values):
        assert len(set(key)) == len(key)
        assert len(set(value)) == len(value)
        if key in told:
            assert told[key] == value
            said |= {start - 1 + offset: token for offset, token in enumerate(value)}
        told[key] = value
    return said, given


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**62), form=st.sampled_from(["plain", "noisy", "fuzzy"]), pairs=st.integers(2, 12),
    extra=st.integers(0, 1), noise=st.sampled_from([0.0, 0.2, 0.9]),
)  # fmt: skip
def test_answers_are_the_values_of_keys_that_occurred_before(seed, form, pairs, extra, noise):
    size = 6 if form == "fuzzy" else 2
    task = make(seed, form=form, noise=noise, sequence_length=size * pairs + extra)
    keys = 7 if form == "fuzzy" else 8
    assert task.signature.input_size == keys + 8 + (16 if noise else 0)
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(10))
        assert len(batch.inputs) == size * pairs + extra - 1
        for column in range(10):
            said, given = questions_in(batch, column, keys, 8)
            assert said == given
            assert said
        if form == "fuzzy" and split is task.test:
            tokens = [batch.inputs[: int(length), column].tolist() for column, length in enumerate(batch.lengths)]
            assert {len(key) for row in tokens for _, key, _ in pairs_of([*row, 7], 7, 8)} == {3}


def test_noise_has_its_share_and_keys_are_uniform():
    task = make(sequence_length=20, noise=0.3, train_size=10_000)
    inputs = task.train.batch(torch.arange(10_000)).inputs
    first = inputs[0:18:2]  # the first tokens of the nine pairs before the last
    noise = (first >= 16).double().mean()
    assert noise == pytest.approx(0.3 * 8 / 9, abs=6 * (0.21 / 90_000) ** 0.5)  # one of nine never is
    assert (inputs[18] < 8).all()
    counts = torch.bincount(first[first < 8].flatten(), minlength=8) / (first < 8).sum()
    assert counts.tolist() == pytest.approx([1 / 8] * 8, abs=0.01)
    counts = torch.bincount(inputs[inputs >= 16] - 16, minlength=16) / (inputs >= 16).sum()
    assert counts.tolist() == pytest.approx([1 / 16] * 16, abs=0.01)


def test_query_is_uniform_over_the_different_keys_before_it():
    """In P = 4 pairs with two keys, the query asks for each key that occurred equally often, however often it did."""
    task = make(form="plain", keys=2, sequence_length=8, train_size=20_000)
    inputs = task.train.batch(torch.arange(20_000)).inputs
    rare = Counter()
    for key in (0, 1):
        once = (inputs[[0, 2, 4]] == key).sum(0) == 1
        rare["asked"] += int((inputs[6, once] == key).sum())
        rare["all"] += int(once.sum())
    assert abs(rare["asked"] - rare["all"] / 2) < 6 * (rare["all"] / 4) ** 0.5


def test_sizes_of_fuzzy_keys_and_values_are_uniform():
    task = make(form="fuzzy", sequence_length=12, train_size=6000)
    batch = task.train.batch(torch.arange(6000))
    sizes = Counter()
    for column, length in zip(batch.inputs.T.tolist(), batch.lengths.tolist(), strict=True):
        ((_, key, value), *_) = pairs_of([*column[:length], 7], 7, 8)
        sizes[len(key), len(value)] += 1
    assert sizes.keys() == {(a, b) for a in (1, 2, 3) for b in (1, 2, 3)}
    assert all(abs(times - 6000 / 9) < 6 * (6000 / 9) ** 0.5 for times in sizes.values())


@pytest.mark.parametrize("values", [{"form": "noisy"}, {"form": "fuzzy", "sequence_length": 60}])
def test_the_best_guess_from_the_current_token_scores_the_baseline(values):
    """After a token of a key it guesses any value, after a token of a value any other one."""
    task = make(test_size=3000, **values)
    batch = task.test.batch(torch.arange(3000))
    keys, tokens = (7, 8) if values["form"] == "fuzzy" else (8, 8)
    current = batch.inputs.gather(0, batch.positions)
    guess = torch.full((*current.shape, task.signature.output_size), -torch.inf, dtype=torch.float64)
    guess[..., keys : keys + tokens] = torch.rand(
        *current.shape, tokens, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    ).mul(1e-9)
    guess.scatter_(-1, current.unsqueeze(-1), -torch.inf)
    measured = {name: float(total) / weight for name, (total, weight) in task.measure(guess, batch.targets).items()}
    baselines = Recall.baselines(RecallSettings.read(values))
    count = int((batch.targets != IGNORED).sum())
    assert measured["accuracy"] == pytest.approx(baselines["accuracy"], abs=6 * (0.125 / count) ** 0.5)
    assert measured["cross_entropy"] == pytest.approx(baselines["cross_entropy"], abs=0.02)
    if values["form"] == "noisy":
        assert baselines == {"accuracy": 1 / 8, "cross_entropy": math.log(8)}
    else:
        assert baselines["accuracy"] == pytest.approx(0.5 / 8 + 0.5 / 7)
        assert baselines["cross_entropy"] == pytest.approx(0.5 * math.log(8) + 0.5 * math.log(7))


def test_longer_tests_have_more_pairs():
    task = make(form="plain", sequence_length=16, longer_tests=True)
    for multiple in (2, 4, 8):
        assert len(task.longer_tests[multiple].batch(torch.arange(3)).inputs) == 16 * multiple - 1
    assert set(Recall.baselines(task_settings(longer_tests=True))) == {
        "accuracy", "accuracy_2t", "accuracy_4t", "accuracy_8t", "cross_entropy"
    }  # fmt: skip


def task_settings(**values) -> RecallSettings:
    return RecallSettings.read(values)


def test_a_form_sets_what_is_not_given():
    assert RecallSettings().noise == 0.2
    fuzzy = task_settings(form="fuzzy", value_length=2)
    assert (fuzzy.key_length, fuzzy.value_length, fuzzy.keys, fuzzy.noise) == (3, 2, 7, 0)
    assert task_settings(form="plain").vocabulary == 16
    assert RecallSettings.restore(fuzzy.canonical()) == fuzzy
    for values, words in (
        ({"sequence_length": 3}, "sequence_length=3 is too short: give 4 or more"),
        ({"form": "fuzzy", "keys": 2}, "key_length=3 is more than keys=2"),
        ({"sequence_length": 60_000}, "sequence_length=60000 is too long"),
    ):
        with pytest.raises(UsageError, match=words):
            RecallSettings.read(values)
