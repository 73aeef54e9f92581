"""Complex numbers in real storage: trained `[..., 2]` (real and imaginary part last), applied interleaved.

A state of n complex units is 2n real features: unit j has columns 2j (real part) and 2j + 1 (imaginary part), as in
the recurrence's complex activations. With real storage, optimisers, clipping, checkpoints and kernels need no change.
"""

from __future__ import annotations

import torch
from torch import Tensor


def as_complex(parameter: Tensor) -> Tensor:
    """Return the complex numbers `[...]` of a parameter `[..., 2]`."""
    parameter = parameter.contiguous()
    # Copied at an odd place of its storage, such as in a vector of all parameters, because no view is possible there.
    return torch.view_as_complex(parameter.clone() if parameter.storage_offset() % 2 else parameter)


def as_real(numbers: Tensor) -> Tensor:
    """Return the parts `[..., 2]` of complex numbers `[...]`."""
    return torch.view_as_real(numbers.resolve_conj())


def interleaved(states: Tensor) -> Tensor:
    """Return complex states `[..., n]` as real features `[..., 2n]`."""
    return as_real(states).flatten(-2)


def complex_states(features: Tensor) -> Tensor:
    """Return real features `[..., 2n]` as complex states `[..., n]`."""
    return as_complex(features.unflatten(-1, (-1, 2)))


def real_form(weight: Tensor) -> Tensor:
    """Return the real `[2n, 2m]` that acts on interleaved features as the complex `[n, m]` acts on complex states."""
    re, im = weight.real, weight.imag
    rows = torch.stack((torch.stack((re, -im), dim=-1), torch.stack((im, re), dim=-1)), dim=1)
    return rows.reshape(2 * weight.shape[0], 2 * weight.shape[1])
