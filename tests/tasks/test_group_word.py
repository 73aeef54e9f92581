"""The groups' axioms and facts, independent of a numbering; words whose products are composed step by step."""

from __future__ import annotations

import math
from collections import Counter
from itertools import combinations, permutations, product

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from orthobench.errors import UsageError
from orthobench.tasks._answers import IGNORED
from orthobench.tasks._groups import group
from orthobench.tasks.group_word import PROTOCOLS, GroupWord, GroupWordSettings

CPU = torch.device("cpu")
ORDERS = {"S3": 6, "S5": 120, "A5": 60, "Z60": 60, "A4xZ5": 60}
# Elements by their order: known counts of cycle types; in A4 x Z5 those of A4 (1, 3, 8) times those of Z5.
ELEMENT_ORDERS = {
    "S3": {1: 1, 2: 3, 3: 2},
    "S5": {1: 1, 2: 25, 3: 20, 4: 30, 5: 24, 6: 20},
    "A5": {1: 1, 2: 15, 3: 20, 5: 24},
    "Z60": {d: sum(math.gcd(k, d) == 1 for k in range(1, d + 1)) for d in range(1, 61) if 60 % d == 0},
    "A4xZ5": {1: 1, 2: 3, 3: 8, 5: 4, 10: 12, 15: 32},
}
CLASS_SIZES = {
    "S3": [1, 2, 3],
    "S5": [1, 10, 15, 20, 20, 24, 30],
    "A5": [1, 12, 12, 15, 20],
    "Z60": [1] * 60,
    "A4xZ5": [1] * 5 + [3] * 5 + [4] * 10,
}
NAMES = sorted(ORDERS)


def inverses(table: np.ndarray) -> np.ndarray:
    return np.array([row.tolist().index(0) for row in table])


def classes(table: np.ndarray) -> list[frozenset[int]]:
    inverse, elements = inverses(table), range(len(table))
    return list({frozenset(int(table[table[inverse[g], a], g]) for g in elements) for a in elements})


def generated(table: np.ndarray, elements: list[int]) -> set[int]:
    reached, new = {0}, {0}
    while new:
        new = {int(table[a, b]) for a in new for b in elements} - reached
        reached |= new
    return reached


@pytest.mark.parametrize("name", NAMES)
def test_groups_satisfy_the_axioms(name):
    table, elements = group(name).table, np.arange(ORDERS[name])
    assert table.shape == (ORDERS[name], ORDERS[name])
    assert (table[0] == elements).all()
    assert (table[:, 0] == elements).all()
    assert (np.sort(table, axis=1) == elements).all()  # so each element has an inverse, and the table is closed
    assert (np.sort(table.T, axis=1) == elements).all()
    assert (table[table] == table[:, table]).all()  # (a b) c = a (b c)


@pytest.mark.parametrize("name", NAMES)
def test_orders_of_elements_and_conjugacy_classes_match(name):
    table = group(name).table
    orders = Counter()
    for element in range(len(table)):
        power, order = element, 1
        while power:
            power, order = table[power, element], order + 1
        orders[order] += 1
    assert orders == ELEMENT_ORDERS[name]
    assert sorted(map(len, classes(table))) == CLASS_SIZES[name]
    assert (table == table.T).all() == (name == "Z60")


@pytest.mark.parametrize("name", ["A5", "S5"])
def test_a5_is_simple_and_s5_has_one_normal_subgroup_between(name):
    """A normal subgroup is a union of classes that is closed."""
    table = group(name).table
    others = [members for members in classes(table) if 0 not in members]
    normal = set()
    for count in range(len(others) + 1):
        for chosen in combinations(others, count):
            union = sorted({0}.union(*chosen))
            if set(table[np.ix_(union, union)].ravel().tolist()) == set(union):
                normal.add(len(union))
    assert normal == ({1, 60} if name == "A5" else {1, 60, 120})


@pytest.mark.parametrize("name", NAMES)
def test_a4_x_z5_is_solvable_and_a5_is_not(name):
    """The commutator subgroups shrink to the identity, or stop."""
    table = group(name).table
    inverse, members, sizes = inverses(table), list(range(len(table))), []
    while not sizes or len(members) < sizes[-1]:
        sizes.append(len(members))
        commutators = {int(table[table[inverse[a], inverse[b]], table[a, b]]) for a in members for b in members}
        members = sorted(generated(table, sorted(commutators)))
    expected = {"S3": [6, 3, 1], "S5": [120, 60], "A5": [60], "Z60": [60, 1], "A4xZ5": [60, 4, 1]}
    assert sizes == expected[name]


@pytest.mark.parametrize("name", NAMES)
def test_every_choice_of_generators_generates_the_group(name):
    tested = group(name)
    least = len(tested.generators)
    assert tested.tokens(None) == list(range(tested.order))
    for count in range(least, tested.order + 1):
        tokens = tested.tokens(count)
        assert len(set(tokens)) == len(tokens) == count
        if count in (least, least + 1, tested.order):
            assert generated(tested.table, tokens) == set(range(tested.order))
    for fewer in range(least):
        assert generated(tested.table, list(tested.generators[:fewer])) != set(range(tested.order))


@pytest.mark.parametrize("name", NAMES)
def test_generators_come_first_and_the_identity_last(name):
    """D-54: the order decides which words a run with `generators=k` has."""
    tested = group(name)
    whole, least = tested.tokens(tested.order), len(tested.generators)
    assert whole[:least] == list(tested.generators)
    assert whole[least:-1] == sorted(set(range(1, tested.order)) - set(tested.generators))
    assert whole[-1] == 0
    for count in range(1, tested.order + 1):
        assert tested.tokens(count) == whole[:count]
        assert (0 in tested.tokens(count)) == (count == tested.order)


def elements(name: str) -> list:
    """The elements by their numbers, as objects that know nothing of a table."""
    if name == "Z60":
        return list(range(60))
    if name == "A4xZ5":
        return list(product(even(4), range(5)))
    return even(5) if name == "A5" else sorted(permutations(range(int(name[1]))))


def even(points: int) -> list[tuple[int, ...]]:
    return [p for p in sorted(permutations(range(points))) if round(np.linalg.det(np.eye(points)[list(p)])) == 1]


def multiply(name: str, a, b):
    """The product: first a, then b."""
    if name == "Z60":
        return (a + b) % 60
    if name == "A4xZ5":
        return multiply("A4", a[0], b[0]), (a[1] + b[1]) % 5
    return tuple(b[a[point]] for point in range(len(a)))


def make(seed=0, **values) -> GroupWord:
    return GroupWord(GroupWordSettings.read({"train_size": 200, "test_size": 200} | values), seed, CPU)


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=12, deadline=None)
@given(
    seed=st.integers(0, 2**62),
    shortest=st.integers(1, 20),
    more=st.integers(0, 20),
    count=st.none() | st.integers(2, 6),
)
def test_targets_are_the_products_of_the_first_elements(name, seed, shortest, more, count):
    lengths = {"shortest": shortest, "longest": shortest + more}
    task = make(seed, group=name, generators=count, **lengths, **{f"test_{k}": v for k, v in lengths.items()})
    tokens, objects = group(name).tokens(count), elements(name)
    assert (task.signature.input_size, task.signature.output_size) == (len(tokens), ORDERS[name])
    for split in (task.train, task.test):
        batch = split.batch(torch.arange(20))
        assert len(batch.inputs) == (shortest + more if split is task.train else int(batch.lengths.max()))
        for column, targets, length in zip(
            batch.inputs.T.tolist(), batch.targets.T.tolist(), batch.lengths, strict=True
        ):
            assert shortest <= length <= shortest + more
            word = [objects[tokens[token]] for token in column[:length]]
            prefix = objects[0]
            for element, target in zip(word, targets[:length], strict=True):
                prefix = multiply(name, prefix, element)
                assert objects[target] == prefix
            assert set(targets[length:]) <= {IGNORED}


def test_tokens_and_lengths_are_uniform():
    task = make(group="S5", shortest=3, longest=7, train_size=10_000)
    batch = task.train.batch(torch.arange(10_000))
    counts = torch.bincount(batch.inputs[:3].flatten(), minlength=120)
    assert ((counts - 250).abs() < 6 * 250**0.5).all()
    lengths = torch.bincount(batch.lengths, minlength=8)[3:]
    assert ((lengths - 2000).abs() < 6 * 2000**0.5).all()


def test_word_depends_on_seed_and_number_alone():
    task = make(shortest=5)
    whole, picked = task.train.batch(torch.arange(200)), torch.tensor([199, 3, 3])
    batch = task.train.batch(picked)
    for name in ("inputs", "targets", "lengths"):
        assert torch.equal(getattr(batch, name), getattr(whole, name)[..., picked])
    task.epoch = 5
    assert torch.equal(task.train.batch(picked).inputs, batch.inputs)
    assert not torch.equal(make(1, shortest=5).train.batch(picked).inputs, batch.inputs)


def test_sequence_accuracy_differs_from_token_accuracy():
    task = make(group="S3", shortest=2, longest=4)
    targets = torch.tensor([[0, 1, 2], [3, 4, 5], [1, 1, IGNORED], [2, IGNORED, IGNORED]])
    outputs = torch.nn.functional.one_hot(targets.clamp(min=0), 6).double()
    outputs[1, 1] = outputs[0, 0]  # a wrong product in the second word, not its last one
    outputs[1, 2] = outputs[0, 0]  # and the last of the third
    measured = {name: float(total) / weight for name, (total, weight) in task.measure(outputs, targets).items()}
    correct, wrong = math.log(math.e + 5) - 1, math.log(math.e + 5)
    assert measured == pytest.approx(
        {
            "sequence_accuracy": 1 / 3,
            "accuracy": 7 / 9,
            "final_accuracy": 2 / 3,
            "prefix_accuracy": (4 + 1 + 1) / 9,
            "cross_entropy": (7 * correct + 2 * wrong) / 9,
        }
    )
    assert (task.score(outputs, targets) * (targets != IGNORED)).T.tolist() == [
        [1, 1, 1, 1],
        [1, 0, 0, 0],
        [1, 0, 0, 0],
    ]
    assert task.loss(outputs, targets).item() == pytest.approx(measured["cross_entropy"])


@pytest.mark.parametrize(
    "values",
    [
        {"group": "S3", "test_shortest": 1, "test_longest": 4},
        {"group": "A5", "generators": 2, "test_shortest": 3, "test_longest": 6},
        {"group": "Z60", "generators": 1, "test_shortest": 5, "test_longest": 5},
        {"group": "S3", "generators": 6, "test_shortest": 2, "test_longest": 2},
    ],
)
def test_baseline_is_the_best_guess_from_the_last_element(values):
    task, table = make(**values, test_size=50_000), group(values["group"]).table
    baselines = GroupWord.baselines(GroupWordSettings.read(values))
    batch = task.test.batch(torch.arange(50_000))
    tokens = torch.tensor(group(values["group"]).tokens(values.get("generators")))
    inverse = torch.from_numpy(inverses(table))[tokens[batch.inputs]]
    valid = batch.targets != IGNORED
    before = torch.from_numpy(table)[batch.targets.clamp(min=0), inverse]  # the product before x_t
    counts = torch.bincount(before[valid], minlength=len(table)).double()
    shares = counts[counts > 0] / counts.sum()
    assert baselines["accuracy"] == pytest.approx(shares.max().item(), abs=0.01)
    assert baselines["cross_entropy"] == pytest.approx(-(shares * shares.log()).sum().item(), abs=0.02)
    right = ((before == 0) | ~valid).all(0).double().mean().item()
    assert baselines["sequence_accuracy"] == pytest.approx(right, abs=0.01)
    beginnings = (before == 0).double().cumprod(0)[valid].mean().item()
    assert baselines["prefix_accuracy"] == pytest.approx(beginnings, abs=0.01)
    last = before.gather(0, (batch.lengths - 1).unsqueeze(0))
    assert baselines["final_accuracy"] == pytest.approx(torch.bincount(last[0]).max().item() / 50_000, abs=0.01)


def test_protocols_are_applied_and_conflicts_refused():
    for protocol, values in PROTOCOLS.items():
        read = GroupWordSettings.read({"protocol": protocol, "test_size": "7"})
        assert read.model_dump() == read.model_dump() | values | {"test_size": 7}
        assert GroupWordSettings.restore(read.canonical()) == read
        assert GroupWord.trained_lengths(read) == (1, values["longest"])
    for values, words in (
        ({"generators": 1}, "generators=1 for A5: give 2 to 60"),
        ({"group": "S3", "generators": 7}, "give 2 to 6"),
        ({"shortest": 30}, "shortest=30 is greater than longest=20"),
    ):
        with pytest.raises(UsageError, match=words):
            GroupWordSettings.read(values)
