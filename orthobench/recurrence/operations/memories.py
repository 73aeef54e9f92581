"""The recurrences of memories: a step writes to a large state, and the output is what a query reads from it."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn.functional import linear, logsigmoid, softplus

from orthobench.recurrence.call import State
from orthobench.recurrence.memory_layout import memory_blocks, memory_size, split_memories
from orthobench.recurrence.operation import Step, operation
from orthobench.recurrence.operations.dense import LARGEST_EXPONENT


def _check_heads(
    n: int, heads: int, key_size: int, factors: int, gated: bool, epsilon: float | None, reads: bool
) -> str | None:
    if min(heads, key_size, factors) < 1 or n % (heads * key_size):
        return f"a state of {n} features is not {heads} matrices with {key_size} rows, and {factors} should be positive"
    return None


def _widths(
    n: int, heads: int, key_size: int, factors: int, gated: bool, epsilon: float | None, reads: bool
) -> tuple[int, int]:
    return heads * key_size * (reads + factors) + factors * n // key_size, heads * (factors + gated)


def unit_heads(
    x: Tensor, heads: int, key_size: int, factors: int, epsilon: float | None, reads: bool = True
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the query `[B, heads, k]`, the keys `[B, factors, heads, k]` and the values `[B, factors, heads, v]`.

    Without `reads` the query is `[B, 0, k]`.
    """
    width = heads * key_size
    read = reads * width
    q, k, v = x.split((read, factors * width, x.shape[-1] - read - factors * width), dim=-1)
    q, k = q.unflatten(-1, (reads * heads, key_size)), k.unflatten(-1, (factors, heads, -1))
    return unit(q, epsilon), unit(k, epsilon), v.unflatten(-1, (factors, heads, -1))


def unit(vectors: Tensor, epsilon: float | None) -> Tensor:
    """Return vectors divided by (|.|^2 + epsilon)^(1/2), or unchanged without epsilon."""
    return vectors if epsilon is None else vectors * (vectors.square().sum(-1, True) + epsilon).rsqrt()


def read_memory(queries: Tensor, memory: Tensor) -> Tensor:
    """Return q^T S of each head `[B, heads * v]`, from queries `[B, heads, k]` and the state `[B, heads * k * v]`."""
    return torch.einsum("bhk,bhkv->bhv", queries, memory.unflatten(-1, (*queries.shape[1:], -1))).flatten(1)


def _query(
    x: Tensor,
    weight: Tensor,
    memory: Tensor,
    heads: int,
    key_size: int,
    factors: int,
    gated: bool,
    epsilon: float | None,
    reads: bool,
) -> Tensor:
    if not reads:
        return x[..., :0]
    return read_memory(unit_heads(x, heads, key_size, factors, epsilon)[0], memory)


@operation(states=("S",), check=_check_heads, widths=_widths, output=_query)
def delta_rule(
    weight: Tensor,
    heads: int,
    key_size: int,
    factors: int = 1,
    gated: bool = False,
    epsilon: float | None = None,
    reads: bool = True,
) -> Step:
    """A memory for each head that the delta rule corrects: with r = `factors` keys k_j and values v_j a step,
    S_t = (I - beta_r k_r k_r^T) ... (I - beta_1 k_1 k_1^T) e^g S_{t-1} + what the values add, read as y_t = S_t^T q_t.

    That is S <- e^g S, then S <- S + beta_j k_j (v_j - S^T k_j)^T for j = 1 ... r. S is `[heads, key_size, values]`.
    x has the query, r keys and r values, `[heads, features]` each. The weight has r betas, `[heads]` each, and with
    `gated` also the logarithm g of the decay. With `epsilon`, query and keys are divided by (|.|^2 + epsilon)^(1/2).
    Without `reads`, x has no query, and the outputs have 0 features: the final memory is the result.

    Yang, Wang, Zhang, Shen, Kim, "Parallelizing Linear Transformers with the Delta Rule over Sequence Length",
    NeurIPS 2024. With r > 1 it is DeltaProduct (Siems et al., NeurIPS 2025).
    """
    betas = weight[..., : factors * heads].unflatten(-1, (factors, heads))

    def step(x: Tensor, memory: Tensor) -> State:
        _, keys, values = unit_heads(x, heads, key_size, factors, epsilon, reads)
        memory = memory.unflatten(-1, (heads, key_size, -1))
        if gated:
            memory = weight[..., factors * heads :, None, None].exp() * memory
        for k, v, beta in zip(keys.unbind(1), values.unbind(1), betas.unbind(1), strict=True):
            error = v - torch.einsum("bhk,bhkv->bhv", k, memory)
            memory = memory + (beta[..., None] * k)[..., None] * error[..., None, :]
        return (memory.flatten(1),)

    return step


def _check_selection(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> str | None:
    if state_size < 1 or n % state_size:
        return f"a state of {n} features is not {state_size} units of each feature"
    width = n // state_size
    expected = {"rates": (rates, (n,)), "step_bias": (step_bias, (width,))}
    for name, (tensor, shape) in expected.items():
        if tensor.shape != shape:
            return f"{name} {list(tensor.shape)} should be {list(shape)}"
    if step_weight.dim() != 2 or len(step_weight) != width or not step_weight.shape[1]:
        return f"step_weight {list(step_weight.shape)} should be [{width}, rank]"
    return None


def _selection_widths(
    n: int, rates: Tensor, step_weight: Tensor, step_bias: Tensor, state_size: int, negative: bool, reads: bool
) -> tuple[int, int]:
    return n // state_size, step_weight.shape[1] + 2 * state_size


def selected(
    coefficients: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool,
    reads: bool = True,
) -> tuple[Tensor, Tensor]:
    """Return a `[..., N, D]` and Delta `[..., 1, D]` of `selective_scan`, from coefficients `[..., rank + 2N]`."""
    rank = step_weight.shape[1]
    delta = softplus(linear(coefficients[..., :rank], step_weight, step_bias)).unsqueeze(-2)
    a = (delta * rates.unflatten(0, (state_size, -1))).exp()
    return (2 * a - 1 if negative else a), delta


def _read_selected(
    x: Tensor, weight: Tensor, h: Tensor, state_size: int, reads: bool, **others: Tensor | bool
) -> Tensor:
    if not reads:
        return x[..., :0]
    y: Tensor = (h.unflatten(-1, (state_size, -1)) * weight[..., -state_size:, None]).sum(-2)
    return y


@operation(check=_check_selection, widths=_selection_widths, output=_read_selected)
def selective_scan(
    weight: Tensor,
    rates: Tensor,
    step_weight: Tensor,
    step_bias: Tensor,
    state_size: int,
    negative: bool = False,
    reads: bool = True,
) -> Step:
    """h_t = a_t o h_{t-1} + Delta_t B_t x_t, read as y_t = C_t h_t: Mamba's selective scan (S6).

    Each of the D features of x has N = `state_size` units. A step's weight is rank numbers r_t, then B_t and C_t `[N]`.
    The weights may also be P x_t of a matrix P `[rank + 2N, D]`, which the kernel for the CPU makes by itself.
    Without `reads` the outputs have 0 features: the final state is the result.
    Delta_t is softplus(W r_t + b) `[D]`. W is `step_weight` `[D, rank]`, and b is `step_bias` `[D]`. The factor a_t is
    exp(Delta_t A), or 2 exp(Delta_t A) - 1 with `negative`. A is `rates` `[N * D]`. The state is `[N * D]` too, the
    first unit of every feature first.

    A. Gu, T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", COLM 2024, algorithm 2.
    """
    a, delta = selected(weight, rates, step_weight, step_bias, state_size, negative)
    b = weight[..., -2 * state_size : -state_size, None]

    def step(x: Tensor, h: Tensor) -> State:
        return (a.flatten(-2) * h + (b * (delta * x.unsqueeze(-2))).flatten(-2),)

    return step


def _check_memories(n: int, heads: int, exponential_forget: bool, reads: bool) -> str | None:
    size = memory_size(n, heads)
    if heads < 1 or size < 1 or n != heads * (size * (size + 1) + 1):
        return f"a state of {n} features is not C, n and m of {heads} heads"
    return None


def _memory_widths(n: int, heads: int, exponential_forget: bool, reads: bool) -> tuple[int, int]:
    return memory_blocks(reads) * heads * memory_size(n, heads), 2 * heads


def normalised(read: Tensor, m: Tensor) -> Tensor:
    """Return C q / max(|n^T q|, 1) from [C q; n^T q] `[..., d + 1]`, divided by exp(m), and m `[..., 1]`."""
    values, total = read[..., :-1], read[..., -1:]
    return values / torch.maximum(total.abs(), (-m).clamp(max=LARGEST_EXPONENT).exp())


def read_memories(q: Tensor, o: Tensor, state: Tensor, heads: int) -> Tensor:
    """Return h of `mlstm` `[B, heads * d]`, from q and o `[B, heads * d]` and the state `[B, features]` of a step."""
    memory, m = split_memories(state, heads)
    read = (memory @ q.unflatten(-1, (heads, -1))[..., None]).squeeze(-1)
    return o.sigmoid() * normalised(read, m[..., None]).flatten(1)


def _read_memories(
    x: Tensor, weight: Tensor, state: Tensor, heads: int, exponential_forget: bool, reads: bool
) -> Tensor:
    if not reads:
        return x[..., :0]
    q, _, _, o = x.chunk(4, dim=-1)
    return read_memories(q, o, state, heads)


@operation(states=("C",), check=_check_memories, widths=_memory_widths, output=_read_memories)
def mlstm(weight: Tensor, heads: int, exponential_forget: bool = False, reads: bool = True) -> Step:
    """mLSTM: C_t = f' C_{t-1} + i' v_t k_t^T, n_t = f' n_{t-1} + i' k_t, h_t = s(o_t) C_t q_t / max(|n_t^T q_t|, 1).

    x has q, sqrt(d) k, v and o, `[heads, d]` each. The weight has i and f of each step, `[heads]` each. i' is exp(i),
    and f' is s(f), or exp(f) with `exponential_forget`. The state has C and n of each head, `[heads, d + 1, d]`, then m
    `[heads]`. C and n are divided by exp(m_t), m_t = max(log f' + m_{t-1}, i_t), and 1 becomes exp(-m_t).
    Without `reads`, x has k and v alone, and the outputs have 0 features: the final state is the result.
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
