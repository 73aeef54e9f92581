r"""LU factors of matrices that need no pivots, for the maps that solve with one matrix at each step.

A matrix whose Hermitian part is positive definite has LU factors without pivots. So has each of its Schur complements,
because their Hermitian parts are positive definite too. The factors' entries grow at most by about the norm of the
skew part (Golub, Van Loan, Linear Algebra Appl. 28, 1979). In float64 that is far below the rounding of W's own type.
On a GPU the search for a pivot in each column costs more than the arithmetic, because it waits for the whole column.
On the CPU torch has no factorisation without pivots.
"""

from __future__ import annotations

import torch
from torch import Tensor


def lu_factors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the LU factors and pivots of `[n, n]`, whose Hermitian part is positive definite."""
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=not matrix.is_cuda)
    return factors, pivots


def inverse_of_shifted(a: Tensor) -> Tensor:
    """Return (I + A)^{-1} `[n, n]` of a skew-Hermitian A; the Hermitian part of I + A is I."""
    shifted = a.clone()
    shifted.diagonal().add_(1)
    if not a.is_cuda:
        inverse: Tensor = torch.linalg.inv_ex(shifted).inverse
        return inverse
    identity = torch.eye(len(a), dtype=a.dtype, device=a.device)
    solved: Tensor = torch.linalg.lu_solve(*lu_factors(shifted), identity)
    return solved
