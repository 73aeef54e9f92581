"""The mLSTM by PyTorch's operations, one chunk of steps at a time, for CUDA.

The gates and maps only read the inputs, so a chunk of steps is a product of matrices. Only the memory between the
chunks is recurrent.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.kernels import Kernel, kernel
from orthobench.recurrence.ops.mlstm import mlstm, normalized_reading
from orthobench.recurrence.ops.mlstm.layout import memory_blocks, split_memories

CHUNK = 32
"""Steps per chunk; the work of a chunk grows with their square."""


@kernel(mlstm, "cuda")
class MLSTM(Kernel):
    """The kernel of `mlstm`: operations of torch, which autograd differentiates."""

    @classmethod
    def run(cls, call: Call) -> Result:
        """Run all steps; a trace needs every memory, so that the reference serves it."""
        if call.trace is not None:
            return reference.run(call)
        x, weight, (state,) = call.x, call.weight, call.state
        heads, reads = call.parameters["heads"], call.parameters["reads"]
        assert isinstance(x, Tensor)
        assert isinstance(weight, Tensor)
        parts = x.unflatten(-1, (memory_blocks(reads), heads, -1)).permute(2, 1, 3, 0, 4)  # [B, heads, T, d] each
        k, v = parts[reads : reads + 2]
        i, f = weight.unflatten(-1, (2, heads)).permute(2, 1, 3, 0)[..., None]  # [B, heads, T, 1]
        log_f = f if call.parameters["exponential_forget"] else logsigmoid(f)
        sources = (k / math.sqrt(k.shape[-1]), torch.cat((v, torch.ones_like(v[..., :1])), dim=-1), i, log_f)
        memory, m = split_memories(state, heads)
        m, readings = m[..., None, None], []
        if reads:
            for part in zip(*(each.split(CHUNK, dim=2) for each in (parts[0], *sources)), strict=True):
                read, memory, m = chunk(memory, m, *part)
                readings.append(read)
            outputs = (parts[3].sigmoid() * torch.cat(readings, dim=2)).permute(2, 0, 1, 3).flatten(2)
        else:
            memory, m = add(memory, m, *sources)
            outputs = x[..., :0]
        return outputs, (torch.cat((memory.flatten(1), m.flatten(1)), dim=-1),)


def add(memory: Tensor, m: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor) -> tuple[Tensor, Tensor]:
    """Return the memory and m after all steps, computed as one product; the arguments are as in `chunk`."""
    end = torch.zeros_like(i[:, :, :1])
    since = torch.cat((log_f.flip(2).cumsum(2).flip(2), end), dim=2)  # sums from the end keep the small terms
    weights, before = i + since[:, :, 1:], m + since[:, :, :1]
    stabiliser = torch.maximum(before, weights.amax(dim=2, keepdim=True))
    memory = (before - stabiliser).exp() * memory + v.mT @ ((weights - stabiliser).exp() * k)
    return memory, stabiliser


def chunk(
    memory: Tensor, m: Tensor, q: Tensor, k: Tensor, v: Tensor, i: Tensor, log_f: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the L steps of a chunk at once; s <= t are steps in it.

        C_t = exp(F_t) C_0 + sum over s of exp(D_ts) v_s k_s^T,   D_ts = log f'_{s+1} + ... + log f'_t + i_s

    Args:
        memory: [C; n] before the chunk, divided by exp(m), `[B, heads, d + 1, d]`.
        m: `[B, heads, 1, 1]`.
        q: `[B, heads, L, d]`.
        k: `[B, heads, L, d]`, divided by sqrt(d).
        v: `[B, heads, L, d + 1]`, whose last feature is 1, so that the memory has n as its last row.
        i: `[B, heads, L, 1]`.
        log_f: log f', `[B, heads, L, 1]`.

    Returns:
        The normalised readings `[B, heads, L, d]`, and the memory and m after the chunk.
    """
    length = q.shape[2]
    causal = torch.ones(length, length, dtype=torch.bool, device=q.device).tril()
    # Each s has its own sum, because a difference of two long sums would lose the small terms.
    decay = (log_f * causal.tril(-1)).cumsum(dim=2)
    weights = torch.where(causal, decay + i.mT, -math.inf)
    before = log_f.cumsum(dim=2) + m
    stabiliser = torch.maximum(before, weights.amax(dim=-1, keepdim=True))
    shares, faded = (weights - stabiliser).exp(), (before - stabiliser).exp()
    read = (q @ k.mT * shares) @ v + faded * (q @ memory.mT)
    last = v.mT @ (shares[:, :, -1, :, None] * k)
    return normalized_reading(read, stabiliser), faded[:, :, -1:] * memory + last, stabiliser[:, :, -1:]
