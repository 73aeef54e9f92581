"""Tests of ranks are those of SciPy, without its import in a report."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import permutation_test, rankdata

from orthobench.analysis.inference import compare_unpaired
from orthobench.analysis.statistics import DRAWS


@pytest.mark.parametrize("sizes", [(2, 2), (3, 2), (5, 5), (4, 6), (7, 7), (9, 9), (130, 140)])
@pytest.mark.parametrize("seed", range(3))
def test_rank_p_value_matches_the_permutation_test(sizes, seed):
    n, m = sizes
    values = np.random.default_rng(seed).integers(0, 6, n + m).astype(float)
    values[0] = np.inf if seed else values[0]
    ranks = rankdata(values)

    def difference(first, second, axis):
        return first.mean(axis=axis) - second.mean(axis=axis)

    expected = permutation_test((ranks[:n], ranks[n:]), difference, n_resamples=DRAWS, vectorized=True, rng=0).pvalue
    assert compare_unpaired(values[:n].tolist(), values[n:].tolist()).p == pytest.approx(expected, rel=1e-12)
