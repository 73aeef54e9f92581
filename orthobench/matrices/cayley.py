r"""The scaled Cayley transform W = (I + A)^{-1} (I - A) D of a skew-symmetric A, D = diag(+-1).

Every orthogonal matrix is reached for a suitable D with all |a_ij| <= 1 (Helfrich, Willmott, Ye, ICML 2018, theorem
3.1). The derivative is their theorem 3.2: with G = dL/dW and V = (I + A)^{-T} G (D + W^T), dL/dA = V^T - V. Here
dL/dA_ij is the derivative when a_ij grows by d and a_ji by -d at once.

With M = (I + A)^{-1} the program computes W = (2 M - I) D and V = 2 M^T G D M^T. The inverse is computed in float64, so
that W is orthogonal to the rounding of its own type; the gradient takes two products in that type.

torch's `parametrizations.orthogonal` has a Cayley map without D, so its W never has an eigenvalue -1. It computes in
the parameter's own precision and differentiates through the solve.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.matrices.skew import inverse_of_shifted, skew, upper_entries
from orthobench.recurrence.projection import product


class _ScaledCayley(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, upper: Tensor, signs: Tensor) -> Tensor:
        inverse = inverse_of_shifted(skew(upper, signs.numel()).double())
        ctx.save_for_backward(inverse.to(upper.dtype, copy=True), signs.to(upper.dtype))
        inverse *= 2 * signs.double()  # in place: fresh memory would cost more time than the arithmetic
        inverse.diagonal().sub_(signs)
        weight: Tensor = inverse.to(upper.dtype).contiguous()
        return weight

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        inverse, signs = ctx.saved_tensors
        v = product(product(inverse.T, 2 * gradient * signs), inverse.T)
        return upper_entries(v.T - v), None


def scaled_cayley(upper: Tensor, signs: Tensor) -> Tensor:
    """Return W `[n, n]`, orthogonal to the rounding of its own type.

    Args:
        upper: the entries of A above its diagonal, `[n (n - 1) / 2]`.
        signs: the diagonal of D, `[n]`, each +1 or -1.
    """
    weight: Tensor = _ScaledCayley.apply(upper, signs)
    return weight


def minus_ones_last(n: int, negative_ones: int) -> Tensor:
    """Return the diagonal of D `[n]`: +1, then `negative_ones` times -1, in the order of the scoRNN program."""
    signs = torch.ones(n)
    signs[n - negative_ones :] = -1
    return signs
