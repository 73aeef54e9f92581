r"""The exponential of a skew-symmetric A: W = exp(A), orthogonal with determinant 1 (EXPRNN, Lezcano-Casado 2019).

W = (E - O)^{-1} (E + O) with E even and O odd in A is orthogonal to rounding for any A: E is symmetric, O is skew, and
the denominator is the numerator's transpose. Scaling by 2^-s only reduces the distance from exp(A). Each of the s
squarings then doubles the distance from orthogonal that is due to rounding. O / E approximates tanh(A / 2): with

    S = A^2,   T = A S,   X = alpha A + beta T,   O = A / 2 + T / 80,   E = I + (13 / 120 + alpha^2) S - X^2,

beta^2 = 1 / 604800 and alpha beta = -1 / 2880, they agree up to order 9. So W is exp(A) up to order 10, as accurate as
the [5/5] Pade approximant. W takes three products and a factorisation. The derivative takes three more and a solve,
because only the skew part of dL/dA is needed. To differentiate, torch's `matrix_exp` takes the exponential of a matrix
with 2n rows.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from orthobench.matrices.aligned import aligned
from orthobench.matrices.skew import applied, derivative_of, lu_factors, skew, upper_entries

BETA = 1 / math.sqrt(604800)
ALPHA = -1 / (2880 * BETA)
SQUARE = 13 / 120 + ALPHA**2
CUBE = 1 / 80
RADIUS = {torch.float32: 1.7, torch.float64: 0.25}
"""Up to this spectral norm of A the distance from exp(A) is below the type's rounding."""
MOST_SQUARINGS = 10
"""Enough squarings for a norm of 1700 in float32; training needs very few. A GPU always multiplies this many times."""


def _plain(upper: Tensor, n: int, on_device: bool) -> Tensor:
    return torch.matrix_exp(skew(upper, n))


class _SkewExponential(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, upper: Tensor, n: int, on_device: bool) -> Tensor:
        a = aligned(skew(upper, n))  # padding is safe: exp of a block diagonal matrix is block diagonal
        s = a @ a
        t = a @ s
        # A is normal: the cube root of any norm of A^3 bounds its spectral norm, far more tightly than a norm of A.
        bound = torch.linalg.matrix_norm(t, 1)
        count = _squarings_on_device(bound) if on_device else _squarings(float(bound), a.dtype)
        steps = MOST_SQUARINGS if isinstance(count, Tensor) else count
        scale = _halved(count, a.dtype) if isinstance(count, Tensor) else 0.5**count
        if steps:
            a *= scale
            s *= scale**2
            t *= scale**3
        x = torch.mul(a, ALPHA).add_(t, alpha=BETA)
        even = torch.addmm(s, x, x, beta=SQUARE, alpha=-1)
        even.diagonal().add_(1)
        odd = t.mul_(CUBE).add_(a, alpha=0.5)
        factors, pivots = lu_factors(even - odd)  # up to RADIUS the eigenvalues of the symmetric part exceed 0.6
        powers = [torch.linalg.lu_solve(factors, pivots, even.add_(odd), left=False)]  # they commute
        for i in range(steps):
            powers.append(_chosen(count, i, powers[-1] @ powers[-1], powers[-1]))
        ctx.count, ctx.steps, ctx.scale, ctx.n, ctx.options = count, steps, scale, n, (n, on_device)
        ctx.save_for_backward(upper, a, x, factors, pivots, *powers[: max(1, steps)])
        result: Tensor = powers[-1][:n, :n].contiguous()
        return result

    @staticmethod
    @derivative_of(_plain, tensors=1)
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        _, a, x, factors, pivots, *powers = ctx.saved_tensors
        g = aligned(gradient)
        for i in reversed(range(ctx.steps)):
            g = _chosen(ctx.count, i, g @ powers[i].T + powers[i].T @ g, g)
        numerator = torch.linalg.lu_solve(factors, pivots, g, adjoint=True)
        denominator = numerator @ powers[0].T  # with the opposite sign, which is compensated where it is used
        even = numerator - denominator
        even = (even + even.T).div_(2)
        odd = numerator.add_(denominator)
        odd = (odd - odd.T).div_(2)
        dx = even @ x
        dx = dx - dx.T  # E X + X E
        dt = torch.mul(odd, CUBE).add_(dx, alpha=BETA)
        # The skew part of the gradient of A through T, (dT) S + A (dT) A + S (dT), and through S, -(dS) A - A (dS).
        b = a @ dt
        da = b.add(b.T, alpha=2).sub_(even, alpha=2 * SQUARE) @ a
        direct = odd.add_(dx, alpha=2 * ALPHA)
        return ctx.scale * upper_entries((direct + da - da.T)[: ctx.n, : ctx.n]), None, None


def _squarings(bound: float, dtype: torch.dtype) -> int:
    """Return the number of squarings that bring the spectral norm below the radius, given a norm of A^3."""
    bound **= 1 / 3
    return max(0, math.ceil(math.log2(bound / RADIUS[dtype]))) if math.isfinite(bound) and bound > 0 else 0


def _squarings_on_device(bound: Tensor) -> Tensor:
    """Return the number of squarings, at most MOST_SQUARINGS, on the device, so that the host need not wait."""
    needed = (bound.double().pow(1 / 3) / RADIUS[bound.dtype]).log2().ceil()
    count: Tensor = torch.where(needed.isfinite(), needed, 0.0).clamp(0, MOST_SQUARINGS).to(bound.dtype)
    return count


def _halved(count: Tensor, dtype: torch.dtype) -> Tensor:
    """Return 2^-count exactly; a GPU's power function rounds."""
    steps = torch.arange(MOST_SQUARINGS, device=count.device)
    return torch.where(steps < count, 0.5, 1.0).prod().to(dtype)


def _chosen(count: int | Tensor, i: int, squared: Tensor, before: Tensor) -> Tensor:
    """Return the matrix after squaring i, or the one before if `count` does not include this squaring."""
    return torch.where(count > i, squared, before) if isinstance(count, Tensor) else squared


def exponential(upper: Tensor, n: int, on_device: bool | None = None) -> Tensor:
    """Return exp(A) `[n, n]` for the A with these entries above its diagonal, `[n (n - 1) / 2]`.

    Args:
        upper: the entries.
        n: the rows of A.
        on_device: choose the number of squarings on the device without waiting for it; None: only on CUDA, on the
            device meta, which has no numbers, and in programs of `torch.compile`, which cannot depend on numbers.
    """
    if on_device is None:
        on_device = upper.is_cuda or upper.is_meta or torch.compiler.is_compiling()
    return applied(_SkewExponential, _plain, upper, n, on_device)
