"""Skew-symmetric matrices A^T = -A from the n (n - 1) / 2 entries above the diagonal, row by row."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from orthobench.matrices.indices import index_table


@index_table(lambda n: n * (n - 1) // 2)
def _above_diagonal(n: int) -> np.ndarray:
    """Return the flat indices in `[n, n]` of the entries above the diagonal, which gather faster than pairs."""
    rows, columns = np.triu_indices(n, 1)
    return rows * n + columns


def skew(upper: Tensor, n: int) -> Tensor:
    """Return the skew-symmetric `[n, n]` matrix with these entries above its diagonal."""
    matrix = upper.new_zeros(n * n).scatter_(0, _above_diagonal(n, device=upper.device), upper).view(n, n)
    return matrix - matrix.T


def upper_entries(matrix: Tensor) -> Tensor:
    """Return the entries above the diagonal, row by row, `[n (n - 1) / 2]`."""
    n = matrix.shape[-1]
    return matrix.reshape(-1).index_select(0, _above_diagonal(n, device=matrix.device))


@index_table(lambda n, width: n * width - width * (width + 1) // 2)
def _in_band(n: int, width: int) -> np.ndarray:
    """Return the indices of the upper entries that are at most `width` columns from the diagonal."""
    rows, columns = np.triu_indices(n, 1)
    return np.flatnonzero(columns - rows <= width)


def band_entries(upper: Tensor, n: int, width: int) -> Tensor:
    """Return the upper entries that are at most `width` columns from the diagonal, row by row."""
    return upper.index_select(0, _in_band(n, width, device=upper.device))


def from_band(entries: Tensor, n: int, width: int) -> Tensor:
    """Return all upper entries `[n (n - 1) / 2]` of the matrix with these entries in its band and zeros outside."""
    return entries.new_zeros(n * (n - 1) // 2).scatter_(0, _in_band(n, width, device=entries.device), entries)


def block_rotation_entries(values: Tensor, n: int) -> Tensor:
    """Return the upper entries of A with diagonal blocks [[0, v_j], [-v_j, 0]]; an odd last row is zero."""
    matrix = values.new_zeros(n, n)
    even = torch.arange(0, 2 * (n // 2), 2)
    matrix[even, even + 1] = values
    return upper_entries(matrix)
