"""The linear recurrence of independent complex units, s_t = lambda s_{t-1} + u_t (LRU), in about 2 sqrt(T) operations.

The sequence is cut into pieces of about sqrt(T) steps. All pieces run at once from a zero state; their final states
are then joined one after another, and each piece gets its start's share, lambda^k times that state. Only powers of
lambda are taken, never quotients, so nothing overflows where |lambda| <= 1. The backward pass is the same recurrence
with conj(lambda) in reversed time.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence.trace import GradientTrace


def diagonal_recurrence(u: Tensor, decay: Tensor, s0: Tensor, trace: GradientTrace | None = None) -> Tensor:
    """All states s_1..s_T.

    Args:
        u: inputs `[T, B, n]`, complex.
        decay: lambda `[n]`, complex.
        s0: `[B, n]`, complex.
        trace: receives ||dL/ds_t|| as "h", real and imaginary parts counted as real features.

    Returns:
        `[T, B, n]`, complex.

    Raises:
        ValueError: shapes that do not fit.
    """
    if u.dim() != 3 or 0 in u.shape or decay.shape != u.shape[2:] or s0.shape != u.shape[1:]:
        raise ValueError(
            f"diagonal_recurrence: u {list(u.shape)}, decay {list(decay.shape)} and s0 {list(s0.shape)} should be "
            "[time, batch, n], [n] and [batch, n]"
        )
    norms = None
    if trace is not None:
        norms = trace.norms["h"] = u.real.new_zeros(u.shape[:2])
    states: Tensor = _Diagonal.apply(u, decay, s0, norms)
    return states


def _scan(u: Tensor, decay: Tensor, start: Tensor) -> Tensor:
    steps = len(u)
    length = math.isqrt(steps - 1) + 1
    pieces = -(-steps // length)
    # Whole pieces; what the zeros behind the end make is cut off again.
    padded = torch.cat((u, u.new_zeros(pieces * length - steps, *u.shape[1:])))
    states = padded.unflatten(0, (pieces, length))
    for k in range(1, length):
        states[:, k].addcmul_(decay, states[:, k - 1])
    powers = decay.expand(length, -1).cumprod(0)  # lambda^1 .. lambda^length
    starts = [start]
    for final in states[:-1, -1].unbind(0):
        starts.append(final + powers[-1] * starts[-1])
    states.addcmul_(powers[:, None], torch.stack(starts)[:, None])
    return padded[:steps]


class _Diagonal(Function):
    @staticmethod
    def forward(ctx: Any, u: Tensor, decay: Tensor, s0: Tensor, norms: Tensor | None) -> Tensor:
        states = _scan(u, decay, s0)
        ctx.norms = norms
        ctx.save_for_backward(decay, s0, states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        decay, s0, states = ctx.saved_tensors
        backwards = decay.conj()
        total = _scan(grad.flip(0), backwards, torch.zeros_like(s0)).flip(0)  # dL/ds_t, which is dL/du_t
        if ctx.norms is not None:
            ctx.norms.copy_(torch.linalg.vector_norm(total, dim=-1))
        ddecay = (total[0] * s0.conj()).sum(0) + (total[1:] * states[:-1].conj()).sum((0, 1))
        return total, ddecay, backwards * total[0], None
