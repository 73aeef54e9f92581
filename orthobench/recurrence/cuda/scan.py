"""A scan of independent units by PyTorch's kernels, in about 2 sqrt(T) operations.

The sequence is cut into pieces of about sqrt(T) steps, and all pieces run at once from a zero state. Their final states
are joined one after another, which gives each piece its initial state. The contribution of this state, multiplied by
the product of the coefficients since then, is added to the piece. Only products of coefficients are computed, never
quotients, so nothing overflows if |a| <= 1. The backward pass is the same recurrence with conj(a) in reversed time.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import pad


def scan_gradients(gradient: Tensor, states: Tensor, a: Tensor, start: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return dL/ds_t, which is also dL/du_t, and dL/da of each step, `[T, B, n]`, and dL/d(start) `[B, n]`; see `scan`.

    `gradient` `[T, B, n]` is dL/ds_t without the later steps.
    """
    backwards = a.conj()
    later = backwards.roll(-1, 0).flip(0) if a.dim() == 3 else backwards
    total = scan(gradient.flip(0), later, torch.zeros_like(start)).flip(0)
    by_a = total * torch.cat((start[None], states[:-1])).conj()
    return total, by_a, (backwards[0] if a.dim() == 3 else backwards) * total[0]


def scan(u: Tensor, a: Tensor, start: Tensor) -> Tensor:
    """Return s_1..s_T `[T, B, n]` of s_t = a_t s_{t-1} + u_t, with a `[n]` or `[T, B, n]` and start `[B, n]`."""
    steps = len(u)
    length = math.isqrt(steps - 1) + 1
    pieces = -(-steps // length)
    rest = (0, 0, 0, 0, 0, pieces * length - steps)
    padded = pad(u, rest)
    states = padded.unflatten(0, (pieces, length))
    per_step = a.dim() == 3
    coefficients = pad(a, rest).unflatten(0, (pieces, length)) if per_step else a.expand(1, length, 1, -1)
    for k in range(1, length):
        states[:, k].addcmul_(coefficients[:, k], states[:, k - 1])
    products = coefficients.cumprod(1)  # a_1, a_1 a_2, ... of each piece
    starts = [start]
    for final, product in zip(states[:-1, -1], products[:, -1].expand(pieces, *products.shape[2:]), strict=False):
        starts.append(final + product * starts[-1])
    states.addcmul_(products, torch.stack(starts)[:, None])
    return padded[:steps]
