"""Skew-Hermitian matrices A* = -A from the n^2 real numbers of a square matrix P.

A = X + iY: the skew-symmetric X takes the entries above P's diagonal, the symmetric Y the other entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def skew_hermitian(entries: Tensor) -> Tensor:
    """Return A, complex `[n, n]`, of P `[n, n]`."""
    upper, lower = entries.triu(1), entries.tril()
    return torch.complex(upper - upper.T, lower + lower.tril(-1).T)


def skew_hermitian_gradient(gradient: Tensor) -> Tensor:
    """Return dL/dP `[n, n]` from dL/dRe A + i dL/dIm A, complex `[n, n]`, where A's entries are free."""
    paired = gradient - gradient.mH  # a number of P moves both entries
    derivative = paired.real.triu(1) + paired.imag.tril()
    derivative.diagonal().div_(2)  # a number of the diagonal moves only one
    return derivative
