"""Two sides by seed: which values are pairs, and which ones changed."""

from __future__ import annotations

import math

import pytest

from orthobench.analysis.pairing import Sides, by_key, changed, single
from orthobench.errors import UsageError


def test_common_and_lone_seeds_are_sorted():
    both = single({3: 0.3, 1: 0.1, 2: 0.2}, {2: 2.0, 3: 3.0, 5: 5.0})
    assert (both.common, both.only_first, both.only_second) == ([2, 3], [1], [5])
    assert both.samples == ([0.3, 0.1, 0.2], [2.0, 3.0, 5.0])
    assert both.pairs(True) == ([0.2, 0.3], [2.0, 3.0])


@pytest.mark.parametrize(("count", "is_paired"), [(5, False), (6, True)])
def test_six_common_seeds_are_paired_by_default(count, is_paired):
    same = dict.fromkeys(range(count), 1.0)
    assert (single(same, same | {99: 1.0}).pairs(None) is not None) == is_paired
    assert single(same, same).pairs(False) is None


@pytest.mark.parametrize(("comparisons", "enough"), [(1, 6), (2, 7), (3, 7), (4, 8)])
def test_sides_are_paired_only_where_that_many_pairs_can_be_tested_apart(comparisons, enough):
    """All signs alike have the p-value 2 / 2**n, which Holm's adjustment multiplies by the number of comparisons."""
    assert comparisons * 2 / 2 ** (enough - 1) > 0.05 >= comparisons * 2 / 2**enough
    for count in (enough - 1, enough):
        same = dict.fromkeys(range(count), 1.0)
        assert (single(same, same).pairs(None, comparisons) is not None) == (count == enough)


def test_seed_with_several_runs_cannot_be_paired():
    runs = [(seed, 1.0) for seed in range(6)] + [(0, 2.0)]
    grouped = {seed: [value for _, value in own] for seed, own in by_key(runs, lambda run: run[0]).items()}
    plain = {seed: [1.0] for seed in range(6)}
    assert Sides(grouped, plain).pairs(None) is None
    with pytest.raises(UsageError, match="'rnn' has several runs of seed 0"):
        Sides(plain, grouped, ("lstm", "rnn")).pairs(True)
    with pytest.raises(UsageError, match="1 common seed: pairs need two"):
        single({0: 1.0}, {0: 1.0}).pairs(True)


@pytest.mark.parametrize(
    ("then", "now", "tolerance", "is_changed"),
    [
        (0.1, 0.1, 0.0, False),
        (0.1, math.nextafter(0.1, 1), 0.0, True),
        (-20.0, -20.01, 1e-3, False),  # a share of the size
        (-20.0, -20.03, 1e-3, True),
        (math.inf, math.inf, 0.0, False),  # both diverged
        (math.inf, 0.1, 0.0, True),
        (0.1, math.inf, 1e-3, True),
    ],
)
def test_value_changed_by_more_than_the_tolerance(then, now, tolerance, is_changed):
    assert changed(single({7: then}, {7: now, 8: 0.0}), tolerance) == ([7] if is_changed else [])
