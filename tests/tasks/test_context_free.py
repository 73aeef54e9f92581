"""Each string is checked with a stack or reversed; uniform draws, counted by listing all strings; the baselines."""

from __future__ import annotations

import math
from collections import Counter
from itertools import product

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.tasks._answers import IGNORED
from orthobench.tasks._brackets import Brackets, completions
from orthobench.tasks._draws import Draws
from orthobench.tasks.context_free import ContextFree, ContextFreeSettings

CPU = torch.device("cpu")


def make(seed=0, **values) -> ContextFree:
    return ContextFree(ContextFreeSettings.read({"train_size": 200, "test_size": 200} | values), seed, CPU)


def read(symbols: list[int], kinds: int) -> tuple[list[int], int, bool]:
    """What may close after each symbol, the most open brackets, and whether the string is balanced."""
    stack: list[int] = []
    answers: list[int] = []
    depth = 0
    for symbol in symbols:
        if symbol < kinds:
            stack.append(symbol)
        elif not stack or stack.pop() != symbol - kinds:
            return answers, depth, False
        depth = max(depth, len(stack))
        answers.append(1 + stack[-1] if stack else 0)
    return answers, depth, not stack


@settings(max_examples=30, deadline=None)
@given(
    seed=st.integers(0, 2**62), kinds=st.integers(2, 4), longest=st.integers(4, 40), depth=st.integers(2, 6),
    test_depth=st.one_of(st.none(), st.integers(2, 12)),
)  # fmt: skip
def test_brackets_are_balanced_within_the_depth_and_answers_follow(seed, kinds, longest, depth, test_depth):
    lengths = {"longest": longest, "test_shortest": longest, "test_longest": 2 * longest}
    task = make(seed, kinds=kinds, depth=depth, test_depth=test_depth, **lengths)
    for split, most, shortest, last in (
        (task.train, depth, 2, longest), (task.test, test_depth or longest, longest, 2 * longest)
    ):  # fmt: skip
        batch = split.batch(torch.arange(20))
        for column, length in enumerate(batch.lengths.tolist()):
            answers, deepest, is_balanced = read(batch.inputs[:length, column].tolist(), kinds)
            assert is_balanced
            assert deepest <= most
            assert shortest <= length <= last
            assert batch.targets[:length, column].tolist() == answers
            assert (batch.targets[length:, column] == IGNORED).all()


@pytest.mark.parametrize("depth", [2, 3, 4])
def test_brackets_are_uniform_among_all_strings_of_their_length(depth):
    """All strings of 8 brackets of two kinds, listed."""
    known = {
        string
        for string in product(range(4), repeat=8)
        for _, deepest, ok in [read(string, 2)]
        if ok and deepest <= depth
    }
    size = 30 * len(known)
    examples, lengths = torch.arange(size), torch.full((size,), 8)
    symbols, _ = Brackets(2, 8, depth, CPU).strings(Draws(0, "brackets"), examples, lengths, 8)
    counts = Counter(map(tuple, symbols.T.tolist()))
    assert counts.keys() <= known
    assert len(counts) == len(known)  # each is missed with a probability of exp(-30)
    assert sum((counts[string] - 30) ** 2 / 30 for string in known) < len(known) + 6 * (2 * len(known)) ** 0.5


def test_ways_are_catalan_numbers_without_a_bound():
    ways = completions(20, 10)
    assert [ways[2 * n][0] for n in range(11)] == [math.comb(2 * n, n) // (n + 1) for n in range(11)]
    assert [completions(10, 1)[2 * n][0] for n in range(6)] == [1] * 6


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**62), kinds=st.integers(2, 5), longest=st.integers(1, 20))
def test_reversed_strings_are_named_at_the_blanks(seed, kinds, longest):
    lengths = {"longest": longest, "test_shortest": longest + 1, "test_longest": 2 * longest + 1}
    task = make(seed, language="reverse_string", kinds=kinds, **lengths)
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(20))
        for column, length in enumerate(batch.lengths.tolist()):
            tokens, targets = batch.inputs[:length, column].tolist(), batch.targets[:, column].tolist()
            string = [token for token in tokens if token < kinds]
            assert tokens == string + [kinds] * len(string)
            assert targets[: len(string)] == [IGNORED] * len(string)
            assert targets[len(string) : length] == string[::-1]
            assert set(targets[length:]) <= {IGNORED}


def scores_of(task: ContextFree, outputs: torch.Tensor, targets: torch.Tensor) -> dict[str, float]:
    return {name: float(total) / weight for name, (total, weight) in task.measure(outputs, targets).items()}


@pytest.mark.parametrize("depth", [None, 3])
def test_the_best_predictor_of_brackets_without_memory_scores_the_baseline(depth):
    """On all strings of 2 to 8 brackets, with the frequency of each answer after each symbol."""
    values = {"test_shortest": 2, "test_longest": 8, "test_depth": depth}
    read_settings = ContextFreeSettings.read(values)
    strings = {
        n: [
            string
            for string in product(range(4), repeat=n)
            for _, deepest, ok in [read(string, 2)]
            if ok and deepest <= (depth or 4)
        ]
        for n in (2, 4, 6, 8)
    }
    answers: dict[int, Counter] = {}
    for known in strings.values():
        for string in known:
            for symbol, answer in zip(string, read(string, 2)[0], strict=True):
                # A length counts as often as another, and all steps alike.
                answers.setdefault(symbol, Counter())[answer] += 1 / len(known)
    total = sum(chance for counts in answers.values() for chance in counts.values())
    accuracy = sum(max(counts.values()) for counts in answers.values()) / total
    nats = -sum(
        chance * math.log(chance / sum(counts.values())) for counts in answers.values() for chance in counts.values()
    )
    best = {symbol: max(counts, key=counts.__getitem__) for symbol, counts in answers.items()}
    rules = [best, {0: 1, 1: 2, 2: 0, 3: 0}]
    whole = [
        sum(
            sum([rule[symbol] for symbol in string] == read(string, 2)[0] for string in known) / len(known)
            for known in strings.values()
        ) / 4
        for rule in rules
    ]  # fmt: skip
    expected = {"sequence_accuracy": max(whole), "accuracy": accuracy, "cross_entropy": nats / total}
    assert ContextFree.baselines(read_settings) == pytest.approx(expected)


def test_a_constant_scores_the_baseline_of_reversed_strings():
    values = {"language": "reverse_string", "test_shortest": 2, "test_longest": 4}
    task = make(test_size=6000, **values)
    batch = task.test.batch(torch.arange(6000))
    guess = torch.zeros(*batch.targets.shape, 2, dtype=torch.float64)
    guess[..., 1] = 1e-9
    expected = {"sequence_accuracy": (1 / 4 + 1 / 8 + 1 / 16) / 3, "accuracy": 1 / 2, "cross_entropy": math.log(2)}
    assert ContextFree.baselines(ContextFreeSettings.read(values)) == pytest.approx(expected)
    assert scores_of(task, guess, batch.targets) == pytest.approx(expected, abs=0.03)
    assert task.loss(guess, batch.targets).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize("language", ["dyck", "reverse_string"])
def test_one_wrong_answer_spoils_a_string(language):
    task = make(language=language, test_shortest=4, test_longest=8)
    targets = task.test.batch(torch.arange(10)).targets
    outputs = torch.nn.functional.one_hot(targets.clamp(min=0), task.signature.output_size).double() * 50
    assert scores_of(task, outputs, targets)["sequence_accuracy"] == ContextFree.main_metric().perfect() == 1
    step = int((targets[:, 3] != IGNORED).nonzero()[1])
    outputs[step, 3] = outputs[step, 3].roll(1)
    count = int((targets != IGNORED).sum())
    assert task.score(outputs, targets).tolist() == [1, 1, 1, 0, 1, 1, 1, 1, 1, 1]
    measured = scores_of(task, outputs, targets)
    assert (measured["sequence_accuracy"], measured["accuracy"]) == (0.9, pytest.approx(1 - 1 / count))


def test_every_epoch_has_new_strings_and_tests_are_deeper():
    task = make(depth=2, longest=20, test_shortest=22, test_longest=40)
    first = task.train.batch(torch.arange(50)).inputs
    task.epoch = 1
    assert not torch.equal(task.train.batch(torch.arange(50)).inputs, first)
    batch = task.test.batch(torch.arange(200))
    depths = [read(row[:length].tolist(), 2)[1] for row, length in zip(batch.inputs.T, batch.lengths, strict=True)]
    assert max(depths) > 5


def test_lengths_follow_the_language_and_wrong_ones_are_refused():
    values = ContextFreeSettings()
    assert (values.shortest, values.longest, values.test_shortest, values.test_longest) == (2, 50, 52, 100)
    assert ContextFree.trained_lengths(values) == (2, 50)
    mirrored = ContextFreeSettings.read({"language": "reverse_string"})
    assert (mirrored.shortest, mirrored.longest, mirrored.test_shortest) == (1, 40, 41)
    assert ContextFree.trained_lengths(mirrored) == (2, 80)
    assert ContextFreeSettings.restore(mirrored.canonical()) == mirrored
    for given_values, words in (
        ({"shortest": 9, "longest": 8}, "shortest=9 is greater than longest=8"),
        ({"shortest": 9, "longest": 9}, "the only one is odd"),
        ({"language": "reverse_string", "depth": 3}, "depth is for brackets"),
    ):
        with pytest.raises(UsageError, match=words):
            ContextFreeSettings.read(given_values)
