r"""The exponential of a skew-symmetric A: W = exp(A), orthogonal with determinant 1 (EXPRNN, Lezcano-Casado 2019).

A diagonal Pade approximant of a skew-symmetric matrix is orthogonal: its denominator is its numerator's transpose.
So r(A) = N^{-T} N with N = p(A) is orthogonal to rounding for any A, and so is what squaring makes of it; only its
distance from exp(A) needs the scaling. torch's `matrix_exp` differentiates by the exponential of a matrix twice as
large, eight times the work; here autograd runs back through a handful of products and one factorisation.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from orthobench.matrices.skew import skew

# exp(x) = p(x) / p(-x) up to order 11 (the [5/5] approximant), for |x| up to RADIUS to float32's or float64's rounding.
COEFFICIENTS = (1.0, 1 / 2, 1 / 9, 1 / 72, 1 / 1008, 1 / 30240)
RADIUS = {torch.float32: 1.8, torch.float64: 0.2}


def exponential(upper: Tensor, n: int) -> Tensor:
    """exp(A) `[n, n]` of the A with these entries above its diagonal, `[n (n - 1) / 2]`."""
    a = skew(upper, n)
    squared = a @ a
    # A is normal: the root of any norm of A^2 bounds its spectral norm, and more tightly than a norm of A.
    bound = math.sqrt(float(torch.linalg.matrix_norm(squared.detach(), 1)))
    squarings = max(0, math.ceil(math.log2(bound / RADIUS[a.dtype]))) if math.isfinite(bound) and bound > 0 else 0
    scale = 0.5**squarings
    a, squared = a * scale, squared * scale**2
    identity = torch.eye(n, dtype=a.dtype, device=a.device)
    fourth = squared @ squared
    c = COEFFICIENTS
    even = c[0] * identity + c[2] * squared + c[4] * fourth
    odd = a @ (c[1] * identity + c[3] * squared + c[5] * fourth)
    weight: Tensor = torch.linalg.solve_ex(even - odd, even + odd).result
    for _ in range(squarings):
        weight = weight @ weight
    return weight.contiguous()
