"""Complex numbers held as reals: trained `[..., 2]` (real and imaginary part last), applied interleaved.

A state of n complex units is 2n real features, unit j in columns 2j (real part) and 2j + 1 (imaginary part), as the
recurrence's complex activations have it. Real storage keeps optimisers, clipping, checkpoints and kernels as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor


def as_complex(parameter: Tensor) -> Tensor:
    """The complex numbers `[...]` of a parameter `[..., 2]`."""
    return torch.view_as_complex(parameter.contiguous())


def as_real(numbers: Tensor) -> Tensor:
    """`[..., 2]` of complex numbers `[...]`."""
    return torch.view_as_real(numbers.resolve_conj())


def interleaved(states: Tensor) -> Tensor:
    """Complex states `[..., n]` as real features `[..., 2n]`."""
    return as_real(states).flatten(-2)


def complex_states(features: Tensor) -> Tensor:
    """Real features `[..., 2n]` as complex states `[..., n]`."""
    return as_complex(features.unflatten(-1, (-1, 2)))


def real_form(weight: Tensor) -> Tensor:
    """The real `[2n, 2m]` that does to interleaved features what the complex `[n, m]` does to complex states."""
    re, im = weight.real, weight.imag
    rows = torch.stack((torch.stack((re, -im), dim=-1), torch.stack((im, re), dim=-1)), dim=1)
    return rows.reshape(2 * weight.shape[0], 2 * weight.shape[1])
