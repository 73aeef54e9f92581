"""The delta rule: a step corrects a memory for each head, and the output is what a query reads from it."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation


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

    Without `reads`, the query is `[B, 0, k]`.
    """
    width = heads * key_size
    read = reads * width
    q, k, v = x.split((read, factors * width, x.shape[-1] - read - factors * width), dim=-1)
    q, k = q.unflatten(-1, (reads * heads, key_size)), k.unflatten(-1, (factors, heads, -1))
    return normalized(q, epsilon), normalized(k, epsilon), v.unflatten(-1, (factors, heads, -1))


def normalized(vectors: Tensor, epsilon: float | None) -> Tensor:
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


@operation(states=("S",), check=_check_heads, widths=_widths, output=_query, forms=None)
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
