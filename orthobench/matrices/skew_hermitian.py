"""Skew-Hermitian matrices A* = -A from the n^2 real numbers of a square matrix P.

A = X + iY: the skew-symmetric X takes the entries above P's diagonal, the symmetric Y the other entries.
"""

from __future__ import annotations

import torch
from torch import Tensor


def skew_hermitian(entries: Tensor) -> Tensor:
    """Return A, complex `[n, n]`, for P `[n, n]`."""
    upper, lower = entries.triu(1), entries.tril()
    return torch.complex(upper - upper.T, lower + lower.tril(-1).T)


def skew_hermitian_gradient(gradient: Tensor) -> Tensor:
    """Return dL/dP `[n, n]` from dL/dRe A + i dL/dIm A, complex `[n, n]`, which treats A's entries as independent."""
    paired = gradient - gradient.mH  # an off-diagonal entry of P changes two entries of A
    derivative = paired.real.triu(1) + paired.imag.tril()
    derivative.diagonal().div_(2)  # a diagonal entry changes only one
    return derivative
