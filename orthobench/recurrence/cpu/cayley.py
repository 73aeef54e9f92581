"""Cayley's transform by the C library."""

from __future__ import annotations

import functools

import torch
from torch import Tensor

from orthobench.recurrence import threads, workspace
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.cpu.call_c import SMALL, pointer
from orthobench.recurrence.cpu.matrix_products import padded


def shifted_skew(upper: Tensor, n: int) -> Tensor:
    """Return I + A `[n, n]` in float64, from the entries `[n (n - 1) / 2]` of A above its diagonal; A is skew."""
    upper, shifted = upper.contiguous(), torch.empty(n, n, dtype=torch.float64, device="cpu")
    call_c.kernels().shifted_skew(n, pointer(upper), pointer(shifted, torch.float64))
    return shifted


def cayley_weight(inverse: Tensor, signs: Tensor) -> tuple[Tensor, Tensor]:
    """Return W = (2 M - I) D and M^T, `[n, n]` in float32, from M in float64 and the signs of D `[n]`."""
    n = inverse.shape[0]
    weight, kept = workspace.take(n, n), workspace.take(n, n)
    address = pointer(inverse, torch.float64, strided=True)
    call_c.kernels().cayley_weight(n, *inverse.stride(), address, pointer(signs), pointer(weight), pointer(kept))
    return weight, kept


def cayley_gradient(gradient: Tensor, kept: Tensor, signs: Tensor) -> Tensor:
    """Return the entries of dL/dA = V^T - V above the diagonal, V = 2 M^T G D M^T, from G = dL/dW `[n, n]` and M^T."""
    library, n = call_c.kernels(), kept.shape[0]
    size, upper = padded(n) * n, kept.new_empty(n * (n - 1) // 2)
    memory = workspace.take(4, size)
    start, left = memory.data_ptr(), pointer(kept)
    packed_g, packed_m, between, v = (start + 4 * size * part for part in range(4))
    library.pack_scaled(n, pointer(gradient, strided=True), *gradient.stride(), pointer(signs), packed_g)
    library.pack(packed_m, left, n, n, 1, n, 1)
    arguments = n, left, packed_g, packed_m, between, v
    ranges = threads.ranges(n, torch.get_num_threads() if n**3 > SMALL else 1)
    threads.run_all([functools.partial(library.two_products, *each, *arguments) for each in ranges])
    library.skew_entries(n, v, pointer(upper))
    return upper
