r"""The exponential of a skew-symmetric A: W = exp(A), orthogonal with determinant 1 (EXPRNN, Lezcano-Casado 2019).

W = (E - O)^{-1} (E + O) with E even and O odd in A is orthogonal to rounding for any A: E is symmetric, O is skew, and
the denominator is the numerator's transpose. Scaling by 2^-s only reduces the distance from exp(A). Each of the s
squarings then doubles the rounding's distance from orthogonal. O / E approximates tanh(A / 2): with

    S = A^2,   T = A S,   X = alpha A + beta T,   O = A / 2 + T / 80,   E = I + (13 / 120 + alpha^2) S - X^2,

beta^2 = 1 / 604800 and alpha beta = -1 / 2880, they agree up to order 9. So W is exp(A) up to order 10, as accurate as
the [5/5] Pade approximant. W takes three products and a factorisation. The derivative takes three more and a solve,
because only the skew part of dL/dA is needed. Torch's `matrix_exp` takes the exponential of a matrix of 2n rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.matrices.aligned import aligned
from orthobench.matrices.skew import skew, upper_entries

BETA = 1 / math.sqrt(604800)
ALPHA = -1 / (2880 * BETA)
SQUARE = 13 / 120 + ALPHA**2
CUBE = 1 / 80
RADIUS = {torch.float32: 1.7, torch.float64: 0.25}
"""Up to this spectral norm of A the distance from exp(A) is below the type's rounding."""


class _Exponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, upper: Tensor, n: int) -> Tensor:
        a = aligned(skew(upper, n))  # zeros stay apart: the exponential of a block diagonal matrix is one
        s = a @ a
        t = a @ s
        # A is normal: the cube root of any norm of A^3 bounds its spectral norm, far more tightly than a norm of A.
        bound = float(torch.linalg.matrix_norm(t, 1)) ** (1 / 3)
        squarings = max(0, math.ceil(math.log2(bound / RADIUS[a.dtype]))) if math.isfinite(bound) and bound > 0 else 0
        scale = 0.5**squarings
        if squarings:
            a *= scale
            s *= scale**2
            t *= scale**3
        x = torch.mul(a, ALPHA).add_(t, alpha=BETA)
        even = torch.addmm(s, x, x, beta=SQUARE, alpha=-1)
        even.diagonal().add_(1)
        odd = t.mul_(CUBE).add_(a, alpha=0.5)
        factors, pivots, _ = torch.linalg.lu_factor_ex(even - odd)
        powers = [torch.linalg.lu_solve(factors, pivots, even.add_(odd), left=False)]  # they commute
        for _ in range(squarings):
            powers.append(powers[-1] @ powers[-1])
        ctx.scale, ctx.n = scale, n
        ctx.save_for_backward(a, x, factors, pivots, *powers[: max(1, squarings)])
        result: Tensor = powers[-1][:n, :n].contiguous()
        return result

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        a, x, factors, pivots, *powers = ctx.saved_tensors
        g = aligned(gradient)
        if ctx.scale < 1:
            for power in reversed(powers):
                g = g @ power.T + power.T @ g
        numerator = torch.linalg.lu_solve(factors, pivots, g, adjoint=True)
        denominator = numerator @ powers[0].T  # with the opposite sign, which its uses change back
        even = numerator - denominator
        even = (even + even.T).div_(2)
        odd = numerator.add_(denominator)
        odd = (odd - odd.T).div_(2)
        dx = even @ x
        dx = dx - dx.T  # E X + X E
        dt = torch.mul(odd, CUBE).add_(dx, alpha=BETA)
        # The skew part of what reaches A through T, (dT) S + A (dT) A + S (dT), and through S, -(dS) A - A (dS).
        b = a @ dt
        da = b.add(b.T, alpha=2).sub_(even, alpha=2 * SQUARE) @ a
        direct = odd.add_(dx, alpha=2 * ALPHA)
        return ctx.scale * upper_entries((direct + da - da.T)[: ctx.n, : ctx.n]), None


def exponential(upper: Tensor, n: int) -> Tensor:
    """Return exp(A) `[n, n]` of the A with these entries above its diagonal, `[n (n - 1) / 2]`."""
    weight: Tensor = _Exponential.apply(upper, n)
    return weight
