"""Index tables on the device meta have the shapes of those with numbers, and take no memory."""

from __future__ import annotations

import pytest
import torch

from orthobench.matrices.householder import falling_size, falling_vectors
from orthobench.matrices.skew import band_entries, from_band, skew


@pytest.mark.parametrize(("n", "width"), [(1, 0), (5, 1), (6, 5), (9, 3)])
def test_shapes_on_meta_equal_those_on_the_cpu(n, width):
    upper = torch.zeros(n * (n - 1) // 2)
    assert skew(upper.to("meta"), n).shape == skew(upper, n).shape == (n, n)
    band = band_entries(upper, n, width)
    assert band_entries(upper.to("meta"), n, width).shape == band.shape
    assert from_band(band.to("meta"), n, width).shape == upper.shape
    entries = torch.zeros(falling_size(n, min(n, 3)))
    assert falling_vectors(entries.to("meta"), n, min(n, 3)).shape == falling_vectors(entries, n, min(n, 3)).shape


def test_large_matrix_on_meta_takes_no_memory():
    n = 10**6
    assert skew(torch.empty(n * (n - 1) // 2, device="meta"), n).shape == (n, n)
