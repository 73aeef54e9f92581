"""mLSTM: Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation
from orthobench.recurrence.ops.mlstm.layout import memory_blocks, memory_size, split_memories
from orthobench.recurrence.ops.slstm import LARGEST_EXPONENT


def _check_memories(n: int, heads: int, exponential_forget: bool, reads: bool) -> str | None:
    size = memory_size(n, heads)
    if heads < 1 or size < 1 or n != heads * (size * (size + 1) + 1):
        return f"a state of {n} features is not C, n and m of {heads} heads"
    return None


def _memory_widths(n: int, heads: int, exponential_forget: bool, reads: bool) -> tuple[int, int]:
    return memory_blocks(reads) * heads * memory_size(n, heads), 2 * heads


def normalized_reading(read: Tensor, m: Tensor) -> Tensor:
    """Return C q / max(|n^T q|, 1) from [C q; n^T q] `[..., d + 1]`, divided by exp(m), and m `[..., 1]`."""
    values, total = read[..., :-1], read[..., -1:]
    return values / torch.maximum(total.abs(), (-m).clamp(max=LARGEST_EXPONENT).exp())


def read_memories(q: Tensor, o: Tensor, state: Tensor, heads: int) -> Tensor:
    """Return h of `mlstm` `[B, heads * d]`, from q and o `[B, heads * d]` and the state `[B, features]` of a step."""
    memory, m = split_memories(state, heads)
    read = (memory @ q.unflatten(-1, (heads, -1))[..., None]).squeeze(-1)
    return o.sigmoid() * normalized_reading(read, m[..., None]).flatten(1)


def _read_memories(
    x: Tensor, weight: Tensor, state: Tensor, heads: int, exponential_forget: bool, reads: bool
) -> Tensor:
    if not reads:
        return x[..., :0]
    q, _, _, o = x.chunk(4, dim=-1)
    return read_memories(q, o, state, heads)


@operation(states=("C",), check=_check_memories, widths=_memory_widths, output=_read_memories, forms=None)
def mlstm(weight: Tensor, heads: int, exponential_forget: bool = False, reads: bool = True) -> Step:
    """mLSTM: C_t = f' C_{t-1} + i' v_t k_t^T, n_t = f' n_{t-1} + i' k_t, h_t = s(o_t) C_t q_t / max(|n_t^T q_t|, 1).

    x has q, sqrt(d) k, v and o, `[heads, d]` each. The weight has i and f of each step, `[heads]` each. i' is exp(i),
    and f' is s(f), or exp(f) with `exponential_forget`. The state has C and n of each head, `[heads, d + 1, d]`, then m
    `[heads]`. C and n are divided by exp(m_t), m_t = max(log f' + m_{t-1}, i_t), and 1 becomes exp(-m_t).
    Without `reads`, x has only k and v, and the outputs have 0 features, because the final state is the result.
    """
    i, f = weight.chunk(2, dim=-1)
    log_f = f if exponential_forget else logsigmoid(f)

    def step(x: Tensor, state: Tensor) -> State:
        memory, m = split_memories(state, heads)
        k, v = x.unflatten(-1, (memory_blocks(reads), heads, -1)).unbind(1)[reads : reads + 2]
        keys = k / math.sqrt(k.shape[-1])
        faded = log_f + m
        m = torch.maximum(faded, i)
        keep, write = ((each - m).exp()[..., None, None] for each in (faded, i))
        values = torch.cat((v, torch.ones_like(v[..., :1])), dim=-1)
        memory = keep * memory + write * (values[..., None] * keys[..., None, :])
        return (torch.cat((memory.flatten(1), m), dim=-1),)

    return step
