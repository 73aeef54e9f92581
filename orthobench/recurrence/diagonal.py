"""The linear recurrence of independent complex units in about 2 sqrt(T) operations (LRU).

The sequence is cut into pieces of about sqrt(T) steps. All pieces run at once from a zero state. Their final states
are joined one after another, and each piece gets its start's share, lambda^k times that state. Only powers of lambda
are taken, never quotients, so nothing overflows where |lambda| <= 1. The backward pass is the same recurrence with
conj(lambda) in reversed time. The kernel is PyTorch's on every device.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.kernels import Arguments, Gradients, Tape


class Diagonal:
    """The kernel of `diagonal_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        return (_scan(x, arguments.weight, arguments.state[0]),), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (states,), (start,) = tape.states, arguments.state
        backwards = arguments.weight.conj()
        total = _scan(tape.all_steps().flip(0), backwards, torch.zeros_like(start)).flip(0)  # dL/dh_t, also dL/dx_t
        for norms in tape.norms:
            norms.copy_(torch.linalg.vector_norm(total, dim=-1))
        weight = (total[0] * start.conj()).sum(0) + (total[1:] * states[:-1].conj()).sum((0, 1))
        return Gradients(total, weight, (backwards * total[0],))


def _scan(u: Tensor, decay: Tensor, start: Tensor) -> Tensor:
    """Return s_1..s_T `[T, B, n]` of s_t = decay s_{t-1} + u_t, with decay `[n]` and start `[B, n]`."""
    steps = len(u)
    length = math.isqrt(steps - 1) + 1
    pieces = -(-steps // length)
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
