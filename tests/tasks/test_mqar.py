"""Keys, values and queries, read off token by token; how gaps are drawn; the mixture's sizes."""

from __future__ import annotations

import math
from collections import Counter
from itertools import permutations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.tasks._answers import IGNORED
from orthobench.tasks.mqar import MQAR, MQARSettings

CPU = torch.device("cpu")
TRAINED = {(64, 4): 100_000, (128, 8): 20_000, (256, 16): 20_000, (256, 32): 20_000, (256, 64): 20_000}
TESTED = [(64, 4), (64, 8), (64, 16), (128, 32), (256, 64), (512, 128), (1024, 256)]


def make(seed=0, **values) -> MQAR:
    return MQAR(MQARSettings.read({"sizes": "single", "train_size": 100, "test_size": 100} | values), seed, CPU)


def check(batch, column: int, steps: int, pairs: int, vocabulary: int, fillers: str) -> None:
    """A sequence says what its answers are."""
    tokens = batch.inputs[:, column].tolist()
    positions, answers = batch.positions[:pairs, column].tolist(), batch.targets[:pairs, column].tolist()
    keys, values = tokens[: 2 * pairs : 2], tokens[1 : 2 * pairs : 2]
    assert len(set(keys)) == len(set(values)) == pairs
    assert all(1 <= key < vocabulary // 2 for key in keys)
    assert all(vocabulary // 2 <= value < vocabulary for value in values)
    assert positions == sorted(set(positions))
    assert all(position % 2 == 0 and 2 * pairs <= position < steps for position in positions)
    assert {tokens[p]: answer for p, answer in zip(positions, answers, strict=True)} == dict(
        zip(keys, values, strict=True)
    )
    rest = [token for p, token in enumerate(tokens[:steps]) if p >= 2 * pairs and p not in positions]
    assert all(0 <= token < vocabulary for token in rest)
    assert fillers == "random" or set(rest) <= {0}
    assert set(tokens[steps:]) <= {0}
    assert set(batch.targets[pairs:, column].tolist()) <= {IGNORED}
    assert int(batch.lengths[column]) == steps


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**62), pairs=st.integers(1, 8), more=st.integers(0, 20), extra=st.integers(1, 100),
    fillers=st.sampled_from(["random", "zero"]),
)  # fmt: skip
def test_each_query_asks_for_the_value_of_its_key(seed, pairs, more, extra, fillers):
    steps = 4 * pairs + 2 * more
    vocabulary = steps + extra
    task = make(seed, sequence_length=steps, pairs=pairs, vocabulary=vocabulary, fillers=fillers)
    assert (task.signature.input_size, task.signature.output_size) == (vocabulary, vocabulary)
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(10))
        assert batch.positions.shape == batch.targets.shape == (pairs, 10)
        for column in range(10):
            check(batch, column, steps, pairs, vocabulary, fillers)


def test_keys_values_and_fillers_are_uniform():
    task = make(sequence_length=16, pairs=3, vocabulary=20, train_size=20_000)
    inputs = task.train.batch(torch.arange(20_000)).inputs
    for token, first, count in ((0, 1, 9), (4, 1, 9), (1, 10, 10), (5, 10, 10)):
        counts = torch.bincount(inputs[token], minlength=20)[first : first + count]
        assert ((counts - 20_000 / count).abs() < 6 * (20_000 / count) ** 0.5).all()
    orders = Counter(zip(*(inputs[k].tolist() for k in (0, 2, 4)), strict=True))
    assert len(orders) == 9 * 8 * 7
    assert all(abs(times - 20_000 / 504) < 6 * (20_000 / 504) ** 0.5 for times in orders.values())
    counts = torch.bincount(inputs[7::2].flatten(), minlength=20) / inputs[7::2].numel()
    assert counts.tolist() == pytest.approx([0.05] * 20, abs=0.003)  # no query has an odd distance


@pytest.mark.parametrize("power", [0.01, 1.0, 2.5])
def test_gaps_are_drawn_without_replacement_by_the_power_law(power):
    """The chance of each sequence of gaps is the product of the chances among the gaps that are left."""
    task = make(sequence_length=14, pairs=3, vocabulary=1000, power=power, train_size=30_000)
    batch = task.train.batch(torch.arange(30_000))
    measured = Counter()
    for column, positions in zip(batch.inputs.T.tolist(), batch.positions.T.tolist(), strict=True):
        offset = {column[p]: (p - 6) // 2 for p in positions}
        measured[tuple(offset[key] for key in column[:6:2])] += 1
    weights = [(gap + 1) ** (power - 1) for gap in range(4)]
    for gaps in permutations(range(4), 3):
        chance, left = 1.0, sum(weights)
        for gap in gaps:
            chance, left = chance * weights[gap] / left, left - weights[gap]
        assert abs(measured[gaps] - 30_000 * chance) < 6 * (30_000 * chance) ** 0.5


def test_mixture_has_the_sizes_of_the_program():
    task = MQAR(MQARSettings(), 0, CPU)
    assert (len(task.train), len(task.test)) == (180_000, 7000)
    start = 0
    for (steps, pairs), count in TRAINED.items():
        for first, column in ((start, 0), (start + count - 2, 1)):
            batch = task.train.batch(torch.tensor([first, first + 1]))
            assert batch.inputs.shape == (steps, 2)
            assert batch.positions.shape == (pairs, 2)
            check(batch, column, steps, pairs, 8192, "random")
        start += count
    for number, (steps, pairs) in enumerate(TESTED):
        batch = task.test.batch(torch.tensor([1000 * number, 1000 * number + 999]))
        assert batch.inputs.shape == (steps, 2)
        check(batch, 1, steps, pairs, 8192, "random")
    assert MQAR.trained_lengths(MQARSettings()) == (64, 256)


def test_batch_of_two_sizes_is_padded_and_counts_every_answer_once():
    task = MQAR(MQARSettings(vocabulary=2000), 0, CPU)
    examples = torch.tensor([999, 1000, 2000, 3000])
    batch = task.test.batch(examples)
    assert batch.inputs.shape == (128, 4)
    for column, (steps, pairs) in enumerate(TESTED[:4]):
        check(batch, column, steps, pairs, 2000, "random")
        alone = task.test.batch(examples[column : column + 1])
        assert torch.equal(alone.inputs[:, 0], batch.inputs[:steps, column])
        assert torch.equal(alone.positions[:, 0], batch.positions[:pairs, column])
        assert (batch.positions[pairs:, column] == batch.positions[pairs - 1, column]).all()
    outputs = torch.randn(32, 4, 2000, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for column, right in enumerate((1, 2, 4, 32)):  # of 4, 8, 16 and 32 answers
        rows = torch.arange(right)
        outputs[rows, column, batch.targets[:right, column]] = 100
    outputs[4:, 0, 0] = 200
    measured = task.measure(outputs, batch.targets)
    values = {name: float(total) / weight for name, (total, weight) in measured.items()}
    assert task.score(outputs, batch.targets).tolist() == [1 / 4, 1 / 4, 1 / 4, 1]
    expected = {"accuracy": 7 / 16, "accuracy_4": 1 / 4, "accuracy_8": 1 / 4, "accuracy_16": 1 / 4, "accuracy_32": 1}
    assert {name: values[name] for name in expected} == pytest.approx(expected)
    nats = [
        -math.log(outputs[row, column].softmax(0)[batch.targets[row, column]])
        for column, pairs in enumerate((4, 8, 16, 32))
        for row in range(pairs)
    ]
    assert values["cross_entropy"] == pytest.approx(sum(nats) / 60)
    assert task.loss(outputs, batch.targets).item() == pytest.approx(sum(nats) / 60)


def test_sequence_depends_on_seed_and_number_alone():
    task = make(vocabulary=200)
    whole, picked = task.train.batch(torch.arange(100)), torch.tensor([99, 3, 3])
    batch = task.train.batch(picked)
    for name in ("inputs", "targets", "positions"):
        assert torch.equal(getattr(batch, name), getattr(whole, name)[:, picked])
    assert not torch.equal(make(1, vocabulary=200).train.batch(picked).inputs, batch.inputs)


def test_baselines_and_settings_match_the_program():
    assert MQAR.baselines(MQARSettings())["accuracy"] == 1 / 4096
    assert MQAR.baselines(MQARSettings())["cross_entropy"] == pytest.approx(math.log(4096))
    assert set(MQAR.baselines(MQARSettings())) == {
        "accuracy", "cross_entropy", *(f"accuracy_{pairs}" for _, pairs in TESTED)
    }  # fmt: skip
    assert MQARSettings().sizes == "mixture"
    assert (MQARSettings(sizes="single").train_size, MQARSettings(sizes="single", train_size=5).train_size) == (
        100_000,
        5,
    )
    assert MQARSettings.restore(MQARSettings().canonical()) == MQARSettings()
    for values, words in (
        ({"pairs": 8}, "pairs=8 needs sizes=single"),
        ({"sequence_length": 128}, "sequence_length=128 needs sizes=single"),
        ({"sizes": "single", "pairs": 17}, "pairs=17 needs 68 tokens, more than sequence_length=64"),
        ({"vocabulary": 1024}, "vocabulary=1024 must be greater than the 1024 tokens of a sequence"),
        ({"test_size": 6}, "test_size=6 is less than"),
        ({"sizes": "single", "sequence_length": 63}, "sequence_length=63"),
    ):
        with pytest.raises(UsageError, match=words):
            MQARSettings.read(values)
