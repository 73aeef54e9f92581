"""Skew-symmetric matrices A^T = -A, held as the n (n - 1) / 2 entries above the diagonal, row by row."""

from __future__ import annotations

import torch
from torch import Tensor


def skew(upper: Tensor, n: int) -> Tensor:
    """The skew-symmetric `[n, n]` matrix with these entries above its diagonal."""
    rows, columns = torch.triu_indices(n, n, offset=1, device=upper.device)
    matrix = upper.new_zeros(n, n)
    matrix[rows, columns] = upper
    matrix[columns, rows] = -upper
    return matrix


def upper_entries(matrix: Tensor) -> Tensor:
    """The entries above the diagonal, row by row, `[n (n - 1) / 2]`."""
    n = matrix.shape[-1]
    rows, columns = torch.triu_indices(n, n, offset=1, device=matrix.device)
    return matrix[rows, columns]


def block_rotation_entries(values: Tensor, n: int) -> Tensor:
    """Upper entries of the block-diagonal A with blocks [[0, v_j], [-v_j, 0]]; an odd last row and column are zero."""
    matrix = values.new_zeros(n, n)
    even = torch.arange(0, 2 * (n // 2), 2)
    matrix[even, even + 1] = values
    return upper_entries(matrix)
