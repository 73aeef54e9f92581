r"""The spectral radius rho(T) = max |eigenvalue| and its derivative (ENRNN, Maduranga et al. 2020, proposition 3.2).

For a simple leading eigenvalue lambda = alpha + i beta with T u = lambda u and v* T = lambda v*,

    S = conj(v) u^T / (v* u),   d rho / dT = (alpha Re S + beta Im S) / rho.

Training moves T little in a step, so Arnoldi's method started from the last vectors finds the pair in a few products;
a full decomposition takes over for small matrices, where Arnoldi fails, and at intervals to check it. All in float64
on the host, as in the authors' program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.linalg
import torch
from scipy.sparse.linalg import ArpackError, eigs
from torch import Tensor
from torch.autograd.function import once_differentiable

SMALL = 48  # the full decomposition is as fast
WANTED = 4  # eigenvalues; more than the leading pair, or Arnoldi may settle on a neighbour
CHECK_EVERY = 200
AGREEMENT = 1e-6


@dataclass(frozen=True)
class Leading:
    """An eigenvalue of largest modulus, with its right and left eigenvectors `[n]`."""

    value: complex
    right: np.ndarray[Any, Any]
    left: np.ndarray[Any, Any]


def leading_eigenpair(matrix: np.ndarray[Any, Any]) -> Leading:
    """By full decomposition: the definition."""
    values, left, right = scipy.linalg.eig(matrix, left=True)
    k = int(np.argmax(np.abs(values)))
    return Leading(complex(values[k]), right[:, k], left[:, k])


class Tracker:
    """Finds leading eigenpairs of matrices that change little from call to call.

    `memory` `[2, n]` float64 holds the starting vectors and is written in place: as a buffer of a module it makes a
    run that goes on from a checkpoint find what the uncut run finds. `calls` counts towards the next full check.
    """

    def __init__(self, memory: Tensor, calls: Tensor) -> None:
        self.memory, self.calls = memory, calls

    def __call__(self, matrix: np.ndarray[Any, Any]) -> Leading:
        found = self._find(matrix)
        self.calls += 1
        for row, vector in zip(self.memory, (found.right, found.left), strict=True):
            # A complex pair spans a plane: the sum of its parts is a start within it.
            row.copy_(torch.from_numpy(vector.real + vector.imag))
        return found

    def _find(self, matrix: np.ndarray[Any, Any]) -> Leading:
        if len(matrix) <= SMALL or int(self.calls) % CHECK_EVERY == 0:
            return leading_eigenpair(matrix)
        starts = self.memory.cpu().numpy()
        right = _arnoldi(matrix, starts[0])
        left = _arnoldi(matrix.T, starts[1])
        if right is None or left is None:
            return leading_eigenpair(matrix)
        value, u = right
        other, w = left
        if abs(abs(other) - abs(value)) > AGREEMENT * abs(value):
            return leading_eigenpair(matrix)
        # matrix^T w = other w: conj(w) is a left eigenvector of other, w one of its conjugate.
        v = w.conj() if abs(other - value) <= abs(other.conjugate() - value) else w
        if abs(np.vdot(v, u)) < AGREEMENT:
            return leading_eigenpair(matrix)
        return Leading(value, u, v)


def _arnoldi(matrix: np.ndarray[Any, Any], start: np.ndarray[Any, Any]) -> tuple[complex, np.ndarray[Any, Any]] | None:
    if not np.isfinite(start).all() or not start.any():
        return None
    try:
        values, vectors = eigs(matrix, k=WANTED, which="LM", v0=start, tol=1e-10, maxiter=40)
    except (ArpackError, np.linalg.LinAlgError):  # no convergence is one of them
        return None
    k = int(np.argmax(np.abs(values)))
    value, vector = complex(values[k]), vectors[:, k]
    residual = np.linalg.norm(matrix @ vector - value * vector)
    return (value, vector) if residual <= AGREEMENT * abs(value) else None


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
