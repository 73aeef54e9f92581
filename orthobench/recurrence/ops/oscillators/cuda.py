"""Linear oscillators by PyTorch's kernels, in about 2 sqrt(T) operations, for CUDA.

They run in pieces, like `cuda.scan`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.oscillators import oscillators


@kernel(oscillators, "cuda")
class Oscillators(Kernel):
    """The kernel of `oscillators`. States are pairs `[..., n, 2]` here, and matrices `[n, 2, 2]`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        matrix, factors = _parts(arguments.weight)
        states = _scan_pairs(x[..., None] * factors, matrix, torch.stack(arguments.state, dim=-1))
        return tuple(each.contiguous() for each in states.unbind(-1)), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (x,), start = tape.saved, torch.stack(arguments.state, dim=-1)
        assert x is not None
        matrix, _ = _parts(arguments.weight)
        gradient = torch.stack((tape.all_steps(), torch.zeros_like(x)), dim=-1)
        gradient[-1, ..., 1] = tape.last(1)
        transposed = matrix.mT
        total = _scan_pairs(gradient.flip(0), transposed, torch.zeros_like(start)).flip(0)
        _, _, c, d = arguments.weight.chunk(4)
        by_y, by_z = total[..., 0], total[..., 1] + d * total[..., 0]  # z_t also acts through y_t
        for norms, each in zip(tape.norms, (by_y, by_z), strict=False):
            norms.copy_(torch.linalg.vector_norm(each, dim=-1))
        before = torch.cat((start[None], torch.stack([each[:-1] for each in tape.states], dim=-1)))
        factors = (by_z * before[..., 1], by_z * before[..., 0], by_z * x, by_y * tape.states[1])
        dweight = torch.cat([factor.sum((0, 1)) for factor in factors])
        return Gradients(c * by_z, dweight, _times(transposed, total[0]).unbind(-1))


def _parts(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the units' matrices `[n, 2, 2]` of (y, z) and the factors of their inputs `[n, 2]`."""
    a, b, c, d = weight.chunk(4)
    return torch.stack((1 + d * b, d * a, b, a), dim=-1).unflatten(-1, (2, 2)), torch.stack((d * c, c), dim=-1)


def _times(matrix: Tensor, states: Tensor) -> Tensor:
    """Return M s of each unit, from matrices `[..., n, 2, 2]` and states `[..., n, 2]`."""
    return (matrix * states[..., None, :]).sum(-1)


def _scan_pairs(driven: Tensor, matrix: Tensor, start: Tensor) -> Tensor:
    """Return s_1..s_T `[T, B, n, 2]` of s_t = M s_{t-1} + u_t, with M `[n, 2, 2]` and start `[B, n, 2]`."""
    steps = len(driven)
    length = math.isqrt(steps - 1) + 1
    pieces = -(-steps // length)
    padded = pad(driven, (0, 0, 0, 0, 0, 0, 0, pieces * length - steps))
    states = padded.unflatten(0, (pieces, length))
    powers = [matrix]
    for k in range(1, length):
        states[:, k] += _times(matrix, states[:, k - 1])
        powers.append((matrix[..., None] * powers[-1][..., None, :, :]).sum(-2))
    starts = [start]
    for final in states[:-1, -1]:
        starts.append(final + _times(powers[-1], starts[-1]))
    states += _times(torch.stack(powers)[:, None], torch.stack(starts)[:, None])
    return padded[:steps]
