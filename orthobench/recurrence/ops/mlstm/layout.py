"""The layout of the inputs and of the state of `mlstm`, for its definition and its kernels."""

from __future__ import annotations

import math

from torch import Tensor


def memory_size(n: int, heads: int) -> int:
    """Return d for a state of n features, which are C `[d, d]`, n `[d]` and m of each head."""
    return math.isqrt(max(0, n // max(1, heads) - 1))


def memory_blocks(reads: bool) -> int:
    """Return the number of blocks `[heads, d]` in x of `mlstm`: q, k, v and o, or k and v without readings."""
    return 4 if reads else 2


def split_memories(state: Tensor, heads: int) -> tuple[Tensor, Tensor]:
    """Return [C; n] `[B, heads, d + 1, d]` and m `[B, heads]` of a state `[B, features]`."""
    memory, m = state.split((state.shape[-1] - heads, heads), dim=-1)
    size = memory_size(state.shape[-1], heads)
    return memory.unflatten(-1, (heads, size + 1, size)), m
