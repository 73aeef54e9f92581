r"""The spectral radius rho(T) = max |eigenvalue| and its derivative (ENRNN, Maduranga et al. 2020, proposition 3.2).

For a simple leading eigenvalue lambda = alpha + i beta with T u = lambda u and v* T = lambda v*,

    S = conj(v) u^T / (v* u),   d rho / dT = (alpha Re S + beta Im S) / rho.

Training moves T little in a step. So the leading invariant subspace of the last call, multiplied by T a few times,
says which eigenvalue leads now (block Krylov with Rayleigh-Ritz), and two or three steps of Ostrowski's two-sided
Rayleigh quotient iteration from there give it and both its vectors to rounding. A full decomposition takes over for
small matrices, where that ends elsewhere, and at intervals to check it. All in float64 on the host, as in the
authors' program.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALL = 32  # the full decomposition is as fast
BLOCK = 8  # directions kept; several eigenvalues may be nearly as large as the leading one
POWERS = 3
ROUNDS = 2
STEPS = 6
RESIDUAL = 1e-9
CHECK_EVERY = 200


Matrix = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Leading:
    """An eigenvalue of largest modulus, with its right and left eigenvectors `[n]`."""

    value: complex
    right: Matrix
    left: Matrix


class Tracker:
    """Finds leading eigenpairs of matrices that change little from call to call.

    `memory` `[n, BLOCK]` float64 holds the leading subspace, `calls` counts towards the next full check; both are
    written in place. As buffers of a module they make a run that goes on from a checkpoint find what the uncut run
    finds.
    """

    def __init__(self, memory: Tensor, calls: Tensor) -> None:
        self.memory, self.calls = memory, calls

    def __call__(self, matrix: Matrix) -> Leading:
        found = None
        if len(matrix) > SMALL and int(self.calls) % CHECK_EVERY:
            found = self._follow(matrix)
        self.calls += 1
        return found or self._decompose(matrix)

    def _follow(self, matrix: Matrix) -> Leading | None:
        basis = self.memory.cpu().numpy()
        if not basis.any():
            return None
        for _ in range(ROUNDS):
            values, vectors, basis = _rayleigh_ritz(matrix, basis)
        found = _refine(matrix, complex(values[0]), vectors[:, 0])
        # The quotient iteration ends at an eigenpair near its start; that no other is larger, the subspace tells.
        if found is None or abs(found.value) < np.abs(values).max() * (1 - 1e-3):
            return None
        larger = np.abs(values) > abs(found.value) * (1 + 1e-9)
        own = np.minimum(np.abs(values - found.value), np.abs(values.conj() - found.value))
        if (larger & (own > 1e-2 * abs(found.value))).any():
            return None
        self._remember(basis)
        return found

    def _decompose(self, matrix: Matrix) -> Leading:
        values, left, right = _decomposed(matrix)
        self._remember(_real_basis(right[:, _by_modulus(values)]))
        return _leading(values, left, right)

    def _remember(self, basis: Matrix) -> None:
        self.memory.zero_()[:, : basis.shape[1]] = torch.from_numpy(basis)


def leading_eigenpair(matrix: Matrix) -> Leading:
    """By full decomposition: the definition."""
    return _leading(*_decomposed(matrix))


def _decomposed(matrix: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """All eigenvalues, left and right eigenvectors."""
    found: Any = scipy.linalg.eig(matrix, left=True)  # the stubs know the two values without left alone
    return found  # type: ignore[no-any-return]


def _leading(values: Matrix, left: Matrix, right: Matrix) -> Leading:
    k = _by_modulus(values)[0]
    return Leading(complex(values[k]), right[:, k], left[:, k])


def _by_modulus(values: Matrix) -> Matrix:
    """Order of the values, largest modulus first."""
    return np.argsort(-np.abs(values), kind="stable")


def _real_basis(vectors: Matrix) -> Matrix:
    """An orthonormal basis `[n, BLOCK]` of the space of the first eigenvectors, real and imaginary parts."""
    first = vectors[:, :BLOCK]
    parts = np.stack((first.real, first.imag), axis=2).reshape(len(first), -1)
    basis, _, _ = scipy.linalg.qr(parts, mode="economic", pivoting=True)
    return np.ascontiguousarray(basis[:, :BLOCK])


def _rayleigh_ritz(matrix: Matrix, basis: Matrix) -> tuple[Matrix, Matrix, Matrix]:
    """Ritz values and vectors, largest first, of span(B, T B, T^2 B), and a basis of its leading part."""
    blocks = [basis]
    for _ in range(POWERS - 1):
        blocks.append(matrix @ blocks[-1])
    space, _ = np.linalg.qr(np.concatenate(blocks, axis=1))
    values, small = np.linalg.eig(space.T @ (matrix @ space))
    order = _by_modulus(values)
    small = small[:, order]
    return values[order], space @ small, space @ _real_basis(small)


def _refine(matrix: Matrix, value: complex, right: Matrix) -> Leading | None:
    """The eigenpair near this one with its left vector, by two-sided Rayleigh quotient iteration; None if it fails."""
    left, identity = right, np.eye(len(matrix))
    for _ in range(STEPS):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", scipy.linalg.LinAlgWarning)  # singular is what it comes to be
            factors = scipy.linalg.lu_factor(matrix - value * identity, check_finite=False)
        if not factors[0].diagonal().all():
            return None
        right = scipy.linalg.lu_solve(factors, right, check_finite=False)
        left = scipy.linalg.lu_solve(factors, left, trans=2, check_finite=False)
        right, left = right / np.linalg.norm(right), left / np.linalg.norm(left)
        overlap = np.vdot(left, right)
        if not np.isfinite(overlap) or abs(overlap) < 1e-12:
            return None
        image = matrix @ right
        value = complex(np.vdot(left, image) / overlap)
        distance = max(
            np.linalg.norm(image - value * right), np.linalg.norm(left.conj() @ matrix - value * left.conj())
        )
        if distance <= RESIDUAL * abs(value):
            return Leading(value, right, left)
    return None


class _Radius(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, matrix: Tensor, tracker: Tracker | None) -> Tensor:
        if not matrix.isfinite().all():
            ctx.save_for_backward(torch.full_like(matrix, torch.nan))
            return matrix.new_tensor(torch.nan)
        find = tracker or leading_eigenpair
        pair = find(matrix.detach().cpu().double().numpy())
        radius = abs(pair.value)
        overlap = np.vdot(pair.left, pair.right)
        s = np.outer(pair.left.conj(), pair.right) / overlap
        derivative = (pair.value.real * s.real + pair.value.imag * s.imag) / radius
        ctx.save_for_backward(torch.from_numpy(derivative).to(matrix))
        return matrix.new_tensor(radius)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        (derivative,) = ctx.saved_tensors
        return gradient * derivative, None


def spectral_radius(matrix: Tensor, tracker: Tracker | None = None) -> Tensor:
    """rho(T) of `[n, n]`, a scalar; without a tracker by full decomposition.

    Differentiable where the leading eigenvalue (or conjugate pair) is simple and not zero.
    """
    radius: Tensor = _Radius.apply(matrix, tracker)
    return radius
