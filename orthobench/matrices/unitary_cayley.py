"""The complex scaled Cayley transform W = (I + A)^{-1} (I - A) D, A skew-Hermitian, D = diag(e^{i theta_j}).

Every unitary matrix is reached for suitable phases (Maduranga, Helfrich, Ye, AAAI 2019). The derivative is the analogue
of scoRNN's theorem 3.2: with M = (I + A)^{-1} and G = dL/dRe W + i dL/dIm W,

    V = M* G (D* + W*) = 2 M* G D* M*,   dL/dA = V* - V,   dL/dtheta_j = Im (W* G)_jj,

where dL/dA is the derivative when a_ij and a_ji move together; on the diagonal they are the same entry, so it is
halved. As in `skew`, the inverse is computed in double precision, so that W is unitary to the rounding of its own
type.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.matrices.skew import applied, derivative_of, inverse_of_shifted


def skew_hermitian(entries: Tensor) -> Tensor:
    """Return a skew-Hermitian A, complex `[n, n]`, from the n^2 real numbers of P `[n, n]`.

    A = X + iY: the skew-symmetric X takes the entries above P's diagonal, the symmetric Y the other entries.
    """
    upper, lower = entries.triu(1), entries.tril()
    return torch.complex(upper - upper.T, lower + lower.tril(-1).T)


def skew_hermitian_gradient(gradient: Tensor) -> Tensor:
    """Return dL/dP `[n, n]` from dL/dRe A + i dL/dIm A, complex `[n, n]`, which treats A's entries as independent."""
    paired = gradient - gradient.mH  # an off-diagonal entry of P changes two entries of A
    derivative = paired.real.triu(1) + paired.imag.tril()
    derivative.diagonal().div_(2)  # a diagonal entry changes only one
    return derivative


def _transform(entries: Tensor, phases: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return W, M and the diagonal of D."""
    a = skew_hermitian(entries.double())
    identity = torch.eye(len(a), dtype=a.dtype, device=a.device)
    inverse = inverse_of_shifted(a)
    d = torch.polar(torch.ones_like(phases, dtype=torch.float64), phases.double())
    number = entries.dtype.to_complex()
    return ((2 * inverse - identity) * d).to(number).contiguous(), inverse.to(number), d.to(number)


def _plain(entries: Tensor, phases: Tensor) -> Tensor:
    return _transform(entries, phases)[0]


class _UnitaryCayley(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, entries: Tensor, phases: Tensor) -> Tensor:
        weight, inverse, d = _transform(entries, phases)
        ctx.save_for_backward(entries, phases, inverse, d, weight)
        return weight

    @staticmethod
    @derivative_of(_plain, tensors=2)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:
        _, _, inverse, d, weight = ctx.saved_tensors
        v = 2 * inverse.mH @ (gradient * d.conj()) @ inverse.mH
        return skew_hermitian_gradient(-v), (weight.conj() * gradient).imag.sum(0)


def unitary_cayley(entries: Tensor, phases: Tensor) -> Tensor:
    """Return W, complex `[n, n]`, unitary to the rounding of its own type.

    Args:
        entries: the real numbers `[n, n]` from which `skew_hermitian` builds A.
        phases: theta, `[n]`.
    """
    return applied(_UnitaryCayley, _plain, entries, phases)
