"""Skew-symmetric matrices A^T = -A from the n (n - 1) / 2 entries above the diagonal, row by row."""

from __future__ import annotations

from functools import lru_cache

import torch
from torch import Tensor


@lru_cache(maxsize=16)
def _above_diagonal(n: int, device: torch.device) -> Tensor:
    """Return the flat indices in `[n, n]` of the entries above the diagonal; they gather faster than pairs."""
    rows, columns = torch.triu_indices(n, n, offset=1, device=device)
    flat: Tensor = rows * n + columns
    return flat


def skew(upper: Tensor, n: int) -> Tensor:
    """Return the skew-symmetric `[n, n]` matrix with these entries above its diagonal."""
    matrix = upper.new_zeros(n * n).scatter_(0, _above_diagonal(n, upper.device), upper).view(n, n)
    return matrix - matrix.T


def upper_entries(matrix: Tensor) -> Tensor:
    """Return the entries above the diagonal, row by row, `[n (n - 1) / 2]`."""
    n = matrix.shape[-1]
    return matrix.reshape(-1).index_select(0, _above_diagonal(n, matrix.device))


@lru_cache(maxsize=16)
def _in_band(n: int, width: int, device: torch.device) -> Tensor:
    """Return the indices of the upper entries that are at most `width` columns from the diagonal."""
    rows, columns = torch.triu_indices(n, n, offset=1, device=device)
    return torch.nonzero(columns - rows <= width).flatten()


def band_entries(upper: Tensor, n: int, width: int) -> Tensor:
    """Return the upper entries that are at most `width` columns from the diagonal, row by row."""
    return upper.index_select(0, _in_band(n, width, upper.device))


def from_band(entries: Tensor, n: int, width: int) -> Tensor:
    """Return all upper entries `[n (n - 1) / 2]` of the matrix with these entries in its band and zeros outside."""
    return entries.new_zeros(n * (n - 1) // 2).scatter_(0, _in_band(n, width, entries.device), entries)


def block_rotation_entries(values: Tensor, n: int) -> Tensor:
    """Return the upper entries of A with diagonal blocks [[0, v_j], [-v_j, 0]]; an odd last row is zero."""
    matrix = values.new_zeros(n, n)
    even = torch.arange(0, 2 * (n // 2), 2)
    matrix[even, even + 1] = values
    return upper_entries(matrix)
