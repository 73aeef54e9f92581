r"""The spectral radius rho(T) = max |eigenvalue| and its derivative (ENRNN, Helfrich and Ye 2020, proposition 3.2).

For a simple leading eigenvalue lambda = alpha + i beta with T u = lambda u and v* T = lambda v*,

    S = conj(v) u^T / (v* u),   d rho / dT = (alpha Re S + beta Im S) / rho.

ARPACK approximates a few of the largest eigenvalues, in float32. Inverse iteration in float64 then refines the
candidates for the largest, with both eigenvectors, to rounding. It needs one factorisation in single precision, whose
error Olsen's correction removes (Olsen, Jorgensen, Simons 1990). Small matrices, and those for which the iteration
fails, are decomposed fully. This runs on the host, as in the authors' program.

On a GPU the host would wait for it in every step. There T is squared a fixed number of times, in float64. The norm of
T^m to the power 1 / m approaches rho, however close the eigenvalues are (Gelfand's formula). T^m also maps everything
into the space of the leading eigenvalue, whose dimension is 1, or 2 for a complex pair or real eigenvalues +-rho. A
basis of this space on both sides of T gives a matrix [2, 2], whose eigenvectors have a closed form. If eigenvalues of
nearly the same modulus are ill conditioned, their space is inexact. The derivative then breaks an equation that holds
for it, and it is 0: the step follows the other gradients alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import scipy.sparse.linalg
import torch
from torch import Tensor

from orthobench.matrices.skew import applied, derivative_of

SMALL = 80  # number of rows up to which the full decomposition is as fast
COUNT, SUBSPACE, TOLERANCE = 6, 60, 1e-3  # for ARPACK; the eigenvalues are far more accurate than the tolerance
RESTARTS = 1 / 16  # for ARPACK, per row; more would take longer than the full decomposition
NEAR = 1e-4  # relative distance within which another eigenvalue may be the largest
SEPARATED = 3e-3  # relative distance of the smallest one found; if nearer, ARPACK may have missed larger ones
RESIDUAL = 1e-10
"""Relative residual at which an eigenpair is refined.

The error of lambda is of second order in the residuals of both vectors, so it is below the rounding of float64. The
rounding of T x leaves a residual of about 1e-13 for a thousand rows, so the iteration can reach this one.
"""
STEPS = 12
"""Corrections before the full decomposition takes over.

Random matrices of 100 and 300 rows, Gaussian and nearly skew, need one or two. Twelve is a bound without a measurement:
a pair that needs more hardly converges, and twelve still cost less than the decomposition, which is cubic in the rows.
"""

SQUARINGS = 40  # moduli that differ by a share of 1e-10 are told apart, and rho is within 1e-11
RESCALED = 2  # squarings after which the norm is set to 1 again
INEXACT = 1e-7  # relative error of the derivative from which a step does without it
SIMPLE = 1e-8  # relative size of T q - lambda q below which q alone spans the space

Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leading:
    """An eigenvalue of largest modulus, with its right and left eigenvectors `[n]`."""

    value: complex
    right: Matrix
    left: Matrix


def leading_eigenpair(matrix: Matrix) -> Leading:
    """Return the leading eigenpair of a real float64 matrix `[n, n]`."""
    pairs = [_refine(matrix, value, right) for value, right in _largest(matrix)] if len(matrix) > SMALL else []
    refined = [pair for pair in pairs if pair is not None]
    if not refined or len(refined) < len(pairs):
        return by_decomposition(matrix)
    return max(refined, key=lambda pair: abs(pair.value))


def by_decomposition(matrix: Matrix) -> Leading:
    """Return the leading eigenpair by full decomposition."""
    decomposed: Any = scipy.linalg.eig(matrix, left=True)  # the type stubs assume that left=False
    values, left, right = decomposed
    k = int(np.abs(values).argmax())
    return Leading(complex(values[k]), right[:, k], left[:, k])


def _largest(matrix: Matrix) -> list[tuple[complex, Matrix]]:
    """Return approximate eigenpairs that include the leading one, without conjugates; empty if ARPACK fails."""
    n = len(matrix)
    start = np.random.default_rng(0).standard_normal(n, dtype=np.float32)  # a fixed start, for reproducible runs
    try:
        values, vectors = scipy.sparse.linalg.eigs(
            matrix.astype(np.float32),
            k=COUNT,
            ncv=min(SUBSPACE, n),
            tol=TOLERANCE,
            v0=start,
            maxiter=int(RESTARTS * n),
        )
    except (scipy.sparse.linalg.ArpackError, scipy.linalg.LinAlgError):
        return []
    moduli = np.abs(values)
    if moduli.min() >= (1 - SEPARATED) * moduli.max():
        return []
    near = (moduli >= (1 - NEAR) * moduli.max()) & (values.imag >= 0)
    return [(complex(value), vector) for value, vector in zip(values[near], vectors.T[near], strict=True)]


def _refine(matrix: Matrix, value: complex, right: Matrix) -> Leading | None:
    """Return the eigenpair near this one with its left vector, or None if the iteration does not converge."""
    shifted = matrix.astype(np.complex64)
    np.fill_diagonal(shifted, shifted.diagonal() - np.complex64(value))
    factors = torch.linalg.lu_factor_ex(torch.from_numpy(shifted))
    if factors.info:
        return None

    def solve(*columns: Matrix, adjoint: bool = False) -> Matrix:
        stacked = torch.from_numpy(np.stack(columns, axis=1).astype(np.complex64))
        solved = torch.linalg.lu_solve(factors.LU, factors.pivots, stacked, adjoint=adjoint).to(torch.complex128)
        transposed: Matrix = solved.numpy().T
        return transposed

    (right,), (left,) = solve(right), solve(right, adjoint=True)
    for _ in range(STEPS):
        right, left = right / np.linalg.norm(right), left / np.linalg.norm(left)
        image, preimage = _times(matrix, right), _times(matrix.T, left)
        overlap = np.vdot(left, right)
        # Negated, because NaN has to end the iteration too.
        if not abs(overlap) > 1e-12:
            return None
        value = complex(np.vdot(left, image) / overlap)
        errors = image - value * right, preimage - value.conjugate() * left
        if max(map(np.linalg.norm, errors)) <= RESIDUAL * abs(value):
            return Leading(value, right, left)
        right = _corrected(right, *solve(errors[0], right))
        left = _corrected(left, *solve(errors[1], left, adjoint=True))
    return None


def _times(matrix: Matrix, vector: Matrix) -> Matrix:
    """Return the product of a real matrix and a complex vector without copying the matrix to a complex type."""
    real, imaginary = (matrix @ np.stack((vector.real, vector.imag), axis=1)).T
    product: Matrix = real + 1j * imaginary
    return product


def _corrected(vector: Matrix, error: Matrix, inverse: Matrix) -> Matrix:
    """Return Olsen's correction x - M^{-1} r + eps M^{-1} x, with eps chosen so that the step is orthogonal to x."""
    step: Matrix = np.vdot(vector, error) / np.vdot(vector, inverse) * inverse - error
    return vector + step


def _plain(matrix: Tensor) -> Tensor:
    radius: Tensor = torch.linalg.eigvals(matrix).abs().max()
    return radius


class _Radius(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        if not matrix.isfinite().all():
            ctx.save_for_backward(matrix, torch.full_like(matrix, torch.nan))
            return matrix.new_tensor(torch.nan)
        pair = leading_eigenpair(matrix.detach().cpu().double().numpy())
        radius = abs(pair.value)
        with np.errstate(divide="ignore", invalid="ignore"):  # NaN without a derivative
            weighted = np.divide(pair.value.conjugate(), radius * np.vdot(pair.left, pair.right)) * pair.right
        left = torch.from_numpy(np.stack((pair.left.real, pair.left.imag), axis=1))
        derivative = left @ torch.from_numpy(np.stack((weighted.real, weighted.imag)))
        ctx.save_for_backward(matrix, derivative.to(matrix))
        return matrix.new_tensor(radius)

    @staticmethod
    @derivative_of(_plain, tensors=1)
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        derivative: Tensor
        _, derivative = ctx.saved_tensors
        return gradient * derivative


class _RadiusByPowers(_Radius):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor) -> Tensor:
        exact = matrix.double()
        radius, derivative = _power(exact)
        if ctx.needs_input_grad[0]:
            derivative = _derivative(exact, derivative)
            # Where it is undefined, or too inexact, the step does without it.
            derivative = torch.where(_error(exact, derivative, radius) <= INEXACT, derivative, 0.0)
        ctx.save_for_backward(matrix, derivative.to(matrix.dtype))
        return radius.to(matrix.dtype)


def _error(matrix: Tensor, derivative: Tensor, radius: Tensor) -> Tensor:
    """Return the relative error of d rho / dT in the equations that hold for it; NaN of an undefined one.

    rho is homogeneous, so sum(T o D) = rho. D is a sum of outer products of left and right eigenvectors of lambda and
    conj(lambda), so it commutes with T^T.
    """
    size = torch.linalg.vector_norm(derivative)
    commuted = torch.linalg.vector_norm(matrix.T @ derivative - derivative @ matrix.T) / (radius * size)
    return torch.maximum(commuted, ((matrix * derivative).sum() / radius - 1).abs())


def _power(matrix: Tensor) -> tuple[Tensor, Tensor]:
    """Return rho(T) and T^m of norm 1, with m = 2^SQUARINGS, from T `[n, n]` in float64."""
    power, logarithm, least = matrix, matrix.new_zeros(()), torch.finfo(matrix.dtype).tiny
    for squared in range(SQUARINGS + 1):
        if squared:
            power = power @ power
        if squared % RESCALED == 0:
            norm = torch.linalg.vector_norm(power)
            # Clamped because the powers of a nilpotent T become 0.
            power = power / norm.clamp(min=least)
            logarithm = logarithm + norm.log() / 2**squared
    return logarithm.exp(), power


def _derivative(matrix: Tensor, power: Tensor) -> Tensor:
    """Return d rho / dT `[n, n]`, from T and T^m."""
    right, is_simple = _basis(matrix, power)
    left, _ = _basis(matrix.T, power.T)
    alone = matrix @ right[:, 0] @ right[:, 0], left[:, 0] @ right[:, 0]
    simple = torch.outer(left[:, 0], right[:, 0]) * (alone[0].sign() / alone[1])
    (a, b), (c, d) = right.T @ matrix @ right
    mean, square = (a + d) / 2, ((a - d) / 2).square() + b * c
    root = square.clamp(min=0).sqrt()
    value = torch.where(mean < 0, mean - root, mean + root), (-square).clamp(min=0).sqrt()
    # Two multiples of the same eigenvector; the longer one has more digits. y is of the transpose. Numbers are pairs of
    # real and imaginary parts, because torch would compile its complex functions for the GPU at their first use.
    x = _longer(((b, value[0] - a), (0 * b, value[1])), ((value[0] - d, c), (value[1], 0 * b)))
    y = _longer(((c, value[0] - a), (0 * b, value[1])), ((value[0] - d, b), (value[1], 0 * b)))
    product = x[0] @ y[0] - x[1] @ y[1], x[0] @ y[1] + x[1] @ y[0]
    # conj(lambda) / (|lambda| x . y), by which y x^T is multiplied
    size = torch.hypot(*value) * (product[0].square() + product[1].square())
    real, imaginary = (
        (value[0] * product[0] - value[1] * product[1]) / size,
        -(value[0] * product[1] + value[1] * product[0]) / size,
    )
    core = real * (torch.outer(y[0], x[0]) - torch.outer(y[1], x[1]))
    core = core - imaginary * (torch.outer(y[0], x[1]) + torch.outer(y[1], x[0]))
    # The vectors with which `right` is a basis and its dual one: left M, with M = (right^T left)^{-1}.
    (p, q), (r, s) = right.T @ left
    inverse = torch.stack((torch.stack((s, -q)), torch.stack((-r, p)))) / (p * s - q * r)
    return torch.where(is_simple, simple, left @ inverse @ core @ right.T)


def _basis(matrix: Tensor, power: Tensor) -> tuple[Tensor, Tensor]:
    """Return an orthonormal basis `[n, 2]` of the space into which T^m maps, and whether the first vector spans it."""
    # Not `power[:, i]`, because indexing by a number on the device waits for it.
    first = power.index_select(1, torch.linalg.vector_norm(power, dim=0).argmax()[None])[:, 0]
    first = first / torch.linalg.vector_norm(first)
    image = matrix @ first
    second = image
    for _ in range(2):  # once more, because the first difference may be small
        second = second - first * (first @ second)
    size = torch.linalg.vector_norm(second)
    return torch.stack((first, second / size), dim=1), size <= SIMPLE * torch.linalg.vector_norm(image)


def _longer(*vectors: tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]) -> Tensor:
    """Return the longer one of two complex vectors, its real and its imaginary part `[2, 2]`."""
    first, second = (torch.stack([torch.stack(part) for part in vector]) for vector in vectors)
    return torch.where(torch.linalg.vector_norm(first) >= torch.linalg.vector_norm(second), first, second)


def spectral_radius(matrix: Tensor, on_device: bool = False) -> Tensor:
    """Return rho(T) of `[n, n]`, a scalar; differentiable where the leading eigenvalue is simple and not zero.

    Args:
        matrix: T.
        on_device: compute by powers of T, for which the host need not wait. The derivative is 0 where it is undefined
            or its error exceeds `INEXACT`.
    """
    return applied(_RadiusByPowers if on_device else _Radius, _plain, matrix)
