"""Skew-Hermitian matrices A* = -A, held as the n^2 real numbers of one square matrix P.

A = X + iY: the skew-symmetric X takes the entries above P's diagonal, the symmetric Y those on it and below.
"""

from __future__ import annotations

import torch
from torch import Tensor


def skew_hermitian(entries: Tensor) -> Tensor:
    """A, complex `[n, n]`, of P `[n, n]`."""
    upper, lower = entries.triu(1), entries.tril()
    return torch.complex(upper - upper.T, lower + lower.tril(-1).T)


def skew_hermitian_gradient(gradient: Tensor) -> Tensor:
    """dL/dP `[n, n]` of dL/dA, complex `[n, n]` with A's entries taken as free (dL/dRe A + i dL/dIm A)."""
    paired = gradient - gradient.mH  # both entries that one number of P moves
    derivative = paired.real.triu(1) + paired.imag.tril()
    derivative.diagonal().div_(2)  # where there is only one
    return derivative
