r"""LU factors of matrices that need no pivoting, for maps that solve a linear system in each step.

A matrix whose Hermitian part is positive definite has LU factors without pivoting, and so do its Schur complements,
because their Hermitian parts are positive definite too. The entries of the factors grow by at most about the norm of
the skew part (Golub, Van Loan, Linear Algebra Appl. 28, 1979). In float64 the resulting error is far below the rounding
of W's own type. On a GPU the search for a pivot in each column costs more than the arithmetic, because it waits for the
whole column. On the CPU torch has no factorisation without pivoting, so a large matrix is inverted blockwise, by
halves. The products of halves take less time than LAPACK's inverse, and no rows need to be exchanged between the
halves.
"""

from __future__ import annotations

import torch
from torch import Tensor

_LEAST = 400  # rows up to which LAPACK inverts the whole matrix


def lu_factors(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return the LU factors and pivots of `[n, n]`, whose Hermitian part is positive definite."""
    factors, pivots, _ = torch.linalg.lu_factor_ex(matrix, pivot=not matrix.is_cuda)
    return factors, pivots


def inverse_of_shifted(a: Tensor) -> Tensor:
    """Return (I + A)^{-1} `[n, n]` of a skew-Hermitian A; the Hermitian part of I + A is I."""
    shifted = a.clone()
    shifted.diagonal().add_(1)
    if not a.is_cuda:
        return _inverse(shifted)
    identity = torch.eye(len(a), dtype=a.dtype, device=a.device)
    solved: Tensor = torch.linalg.lu_solve(*lu_factors(shifted), identity)
    return solved


def _inverse(matrix: Tensor) -> Tensor:
    """Return the inverse `[n, n]` of a matrix whose Hermitian part is positive definite.

    Its blocks are [[P, B], [C, Q]]. S = Q - C P^{-1} B is the Schur complement, and the inverse is

        [P^{-1} + P^{-1} B S^{-1} C P^{-1}    -P^{-1} B S^{-1}]
        [-S^{-1} C P^{-1}                      S^{-1}         ]
    """
    n = len(matrix)
    if n <= _LEAST:
        inverse: Tensor = torch.linalg.inv_ex(matrix).inverse
        return inverse
    half = (n // 2 + 31) // 32 * 32  # multiples of the vector width make products faster
    (p, b), (c, q) = ((part[:, :half], part[:, half:]) for part in (matrix[:half], matrix[half:]))
    p = _inverse(p)
    right, left = p @ b, c @ p
    s = _inverse(torch.addmm(q, c, right, alpha=-1))
    right = right @ s
    inverse = torch.empty_like(matrix)
    inverse[:half, :half] = torch.addmm(p, right, left)
    inverse[:half, half:] = -right
    inverse[half:, :half] = -(s @ left)
    inverse[half:, half:] = s
    return inverse
