"""Initial values that several of the papers use and torch does not provide."""

from __future__ import annotations

import math
from typing import Literal

import torch
from torch import Tensor, nn


def as_parameter(start: Tensor) -> nn.Parameter:
    """Return an initial value as a contiguous parameter of torch's default type, like those of `torch.nn`."""
    return nn.Parameter(start.to(torch.get_default_dtype()).contiguous())


@torch.no_grad()
def glorot_vector_(vector: Tensor, generator: torch.Generator) -> Tensor:
    """Fill a vector of length k with U(-s, s), s = sqrt(3 / k): TensorFlow 1's default initialiser for a vector."""
    bound = math.sqrt(3 / vector.numel())
    return vector.uniform_(-bound, bound, generator=generator)


@torch.no_grad()
def torch_linear_(tensor: Tensor, fan_in: int, generator: torch.Generator) -> Tensor:
    """Fill a tensor with U(-1 / sqrt(fan_in), 1 / sqrt(fan_in)), as torch's Linear does."""
    bound = 1 / math.sqrt(fan_in)
    return tensor.uniform_(-bound, bound, generator=generator)


def half_circle_angles(n: int, generator: torch.Generator) -> Tensor:
    """Draw floor(n / 2) angles t ~ U(0, pi / 2), float64 (scoRNN, section 4.2; after Henaff et al. 2016)."""
    return torch.rand(n // 2, generator=generator, dtype=torch.float64) * (math.pi / 2)


def exponential_angles(start: Literal["full_circle", "half_circle"], n: int, generator: torch.Generator) -> Tensor:
    """Draw floor(n / 2) angles of exp(A), float64, as in EXPRNN's program.

    full_circle: U(-pi, pi); half_circle: -tan(t / 2), the entries of the Cayley transform, used as angles.
    """
    if start == "full_circle":
        return torch.empty(n // 2, dtype=torch.float64).uniform_(-math.pi, math.pi, generator=generator)
    return -torch.tan(half_circle_angles(n, generator) / 2)


def inverse_softplus(values: Tensor) -> Tensor:
    """Return the numbers whose softplus is `values`, all above 0."""
    # By expm1, because 1 - exp(-0.001) has few digits left.
    return values + torch.log(-torch.expm1(-values))
