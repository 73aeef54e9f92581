r"""The exponential of a skew-symmetric A: W = exp(A), orthogonal with determinant 1 (EXPRNN, Lezcano-Casado 2019).

A diagonal Pade approximant of a skew-symmetric matrix is orthogonal: its denominator is its numerator's transpose.
So r(A) = N^{-T} N with N = p(A) is orthogonal to rounding for any A, and so is what squaring makes of it; only its
distance from exp(A) needs the scaling. torch's `matrix_exp` differentiates by the exponential of a matrix twice as
large, eight times the work; here the derivative runs back through the approximant itself. A is skew, its even powers
are symmetric, and only the skew part of dL/dA is asked for: with that the six products of the backward pass do.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.matrices.skew import skew, upper_entries

# exp(x) = p(x) / p(-x) up to order 11 (the [5/5] approximant), for |x| up to RADIUS to float32's or float64's rounding.
COEFFICIENTS = (1.0, 1 / 2, 1 / 9, 1 / 72, 1 / 1008, 1 / 30240)
RADIUS = {torch.float32: 1.8, torch.float64: 0.2}


class _Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, upper: Tensor, n: int) -> Tensor:
        a = skew(upper, n)
        s = a @ a
        fourth = s @ s
        # A is normal: the fourth root of any norm of A^4 bounds its spectral norm, far more tightly than a norm of A.
        bound = float(torch.linalg.matrix_norm(fourth, 1)) ** 0.25
        squarings = max(0, math.ceil(math.log2(bound / RADIUS[a.dtype]))) if math.isfinite(bound) and bound > 0 else 0
        scale = 0.5**squarings
        if squarings:
            a *= scale
            s *= scale**2
            fourth *= scale**4
        c = COEFFICIENTS
        even = torch.add(c[2] * s, fourth, alpha=c[4])
        even.diagonal().add_(c[0])
        quotient = torch.add(c[3] * s, fourth, alpha=c[5])
        quotient.diagonal().add_(c[1])
        odd = a @ quotient
        factors, pivots, _ = torch.linalg.lu_factor_ex(even - odd)
        powers = [torch.linalg.lu_solve(factors, pivots, even + odd)]
        for _ in range(squarings):
            powers.append(powers[-1] @ powers[-1])
        ctx.scale = scale
        ctx.save_for_backward(a, s, quotient, factors, pivots, *powers[: max(1, squarings)])
        result: Tensor = powers[-1].contiguous()
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        a, s, quotient, factors, pivots, *powers = ctx.saved_tensors
        g, c = gradient, COEFFICIENTS
        if ctx.scale < 1:
            for power in reversed(powers):
                g = g @ power.T + power.T @ g
        numerator = torch.linalg.lu_solve(factors, pivots, g, adjoint=True)
        denominator = numerator @ powers[0].T  # less than nothing: its sign is turned where it is used
        even = _symmetric(numerator - denominator)
        odd = numerator + denominator
        odd = (odd - odd.T) / 2
        da = odd @ quotient
        dq = _symmetric(a @ odd)  # of this too the sign is turned
        dfourth = c[4] * even - c[5] * dq
        product = dfourth @ s
        ds = (c[2] * even - c[3] * dq).add_(product).add_(product.T)
        product = ds @ a
        da -= product - product.T
        return ctx.scale * upper_entries(da - da.T), None


def _symmetric(matrix: Tensor) -> Tensor:
    return (matrix + matrix.T) / 2


def exponential(upper: Tensor, n: int) -> Tensor:
    """exp(A) `[n, n]` of the A with these entries above its diagonal, `[n (n - 1) / 2]`."""
    weight: Tensor = _Exponential.apply(upper, n)
    return weight
