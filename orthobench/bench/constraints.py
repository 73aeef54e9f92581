"""Constraints: maps from a free parameter to a recurrent matrix W, with the parameter's initial value."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Generator, Tensor

from orthobench.matrices.exponential import exponential
from orthobench.matrices.householder import householder_product
from orthobench.matrices.initial import half_circle_angles
from orthobench.matrices.skew import block_rotation_entries, minus_ones_last, scaled_cayley
from orthobench.matrices.spectral_radius import spectral_radius
from orthobench.recurrence.plain_tensors import is_on_gpu

StartAndMap = tuple[Tensor, Callable[[Tensor], Tensor]]
"""The parameter's initial value, and the map from the parameter to W `[n, n]`."""
Parametrisation = Callable[[int, Generator, torch.device], StartAndMap]


def free(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    """Return W itself: a random matrix with eigenvalues in the unit disc."""
    return (torch.randn(n, n, generator=generator) / math.sqrt(n)).to(device), lambda weight: weight


def cayley(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    signs = minus_ones_last(n, n // 2).to(device)
    return _rotations(n, generator, device), lambda upper: scaled_cayley(upper, signs)


def matrix_exponential(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    return _rotations(n, generator, device), lambda upper: exponential(upper, n)


def unit_radius(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    start, _ = free(n, generator, device)
    return start, lambda weight: weight / spectral_radius(weight, is_on_gpu(weight))


def reflections(n: int, generator: Generator, device: torch.device) -> StartAndMap:
    """Return n reflections, whose products cover all orthogonal matrices of one determinant."""
    return torch.randn(n, n, generator=generator).to(device), householder_product


def _rotations(n: int, generator: Generator, device: torch.device) -> Tensor:
    """Draw scoRNN's initial skew-symmetric matrix."""
    s = torch.tan(half_circle_angles(n, generator) / 2)
    return block_rotation_entries(s, n).float().to(device)


CONSTRAINTS: dict[str, Parametrisation] = {
    "Cayley": cayley,
    "exponential": matrix_exponential,
    "spectral radius": unit_radius,
    "n reflections": reflections,
}
