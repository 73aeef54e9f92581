"""Memories that decay and are written to at each step: those of RWKV-7, of Mamba-3, and of M2RNN."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import linear, normalize

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation
from orthobench.recurrence.ops.delta import read_memory

LEAST_LOG_DECAY = -math.exp(-0.5)
"""The logarithm of the strongest decay of a step of RWKV-7."""


def _check_memories(n: int, heads: int, key_size: int, reads: bool) -> str | None:
    if min(heads, key_size) < 1 or n % (heads * key_size):
        return f"a state of {n} features is not {heads} matrices with {key_size} rows"
    return None


def _check_transition(n: int, transition: Tensor, heads: int, key_size: int, reads: bool) -> str | None:
    if reason := _check_memories(n, heads, key_size, reads):
        return reason
    values = n // (heads * key_size)
    wanted = [heads, values, values]
    return None if list(transition.shape) == wanted else f"transition {list(transition.shape)} should be {wanted}"


def _check_rates(n: int, heads: int, key_size: int, epsilon: float, reads: bool, **tensors: Tensor) -> str | None:
    low = tensors["rate_weight"].shape[-1]
    for name, tensor in tensors.items():
        shape = [heads * key_size, low] if name == "rate_weight" else [heads * key_size]
        if list(tensor.shape) != shape:
            return f"{name} {list(tensor.shape)} should be {shape}"
    return _check_memories(n, heads, key_size, reads)


def _decay_widths(n: int, heads: int, key_size: int, reads: bool, **_: object) -> tuple[int, int]:
    return n // key_size, heads * (1 + key_size * (1 + reads))


def _rate_widths(
    n: int, rate_weight: Tensor, heads: int, key_size: int, reads: bool, **_: object
) -> tuple[int, tuple[int, int]]:
    keys, low = heads * key_size, rate_weight.shape[-1]
    return keys * (1 + reads) + n // key_size + 2 * low, (keys, low)


def _rates(
    x: Tensor, weight: Tensor, decay_bias: Tensor, rate_weight: Tensor, rate_bias: Tensor, **_: object
) -> Tensor:
    """Return the logarithms of the decays and the rates of all steps `[T, B, 2 * heads * key_size]`."""
    low = weight.shape[-1]
    decays = LEAST_LOG_DECAY * linear(x[..., -2 * low : -low].tanh(), weight, decay_bias).sigmoid()
    return torch.cat((decays, linear(x[..., -low:], rate_weight, rate_bias).sigmoid()), dim=-1)


def queries_keys_values(x: Tensor, heads: int, key_size: int, reads: bool) -> list[Tensor]:
    """Return the queries, or `[B, 0, k]`, the keys `[B, heads, k]` and the values `[B, heads, v]`."""
    keys = heads * key_size
    query, key, value = x.split((reads * keys, keys, x.shape[-1] - (1 + reads) * keys), dim=-1)
    return [
        query.unflatten(-1, (reads * heads, key_size)),
        key.unflatten(-1, (heads, -1)),
        value.unflatten(-1, (heads, -1)),
    ]


def _read(x: Tensor, weight: Tensor, memory: Tensor, heads: int, key_size: int, reads: bool, **_: object) -> Tensor:
    return read_memory(queries_keys_values(x, heads, key_size, reads)[0], memory) if reads else x[..., :0]


def _read_decaying(
    x: Tensor, weight: Tensor, memory: Tensor, heads: int, key_size: int, reads: bool, **_: object
) -> Tensor:
    return _read(weight[..., heads:], weight, memory, heads, key_size, reads)


def _read_erased(x: Tensor, weight: Tensor, memory: Tensor, rate_weight: Tensor, **parameters: Any) -> Tensor:
    return _read(x[..., : -2 * rate_weight.shape[-1]], weight, memory, **parameters)


@operation(states=("S",), check=_check_memories, widths=_decay_widths, output=_read_decaying, forms=None)
def decaying_memory(weight: Tensor, heads: int, key_size: int, reads: bool = True) -> Step:
    """A memory for each head that decays at a rate of its own: S_t = e^g S_{t-1} + k v^T, read as y_t = S_t^T q_t.

    S is `[heads, key_size, values]`, and x is the value `[heads, values]`. The weight has g `[heads]`, the query and
    the key `[heads, key_size]`. Without `reads`, it has no query, and the outputs have 0 features: the final memory is
    the result.

    Dao, Gu, "Transformers are SSMs", ICML 2024.
    """

    def step(x: Tensor, memory: Tensor) -> State:
        _, key, value = queries_keys_values(torch.cat((weight[..., heads:], x), dim=-1), heads, key_size, reads)
        memory = memory.unflatten(-1, (heads, key_size, -1))
        decay = weight[..., :heads, None, None].exp()
        return ((decay * memory + key[..., None] * value[..., None, :]).flatten(1),)

    return step


@operation(states=("S",), check=_check_transition, widths=_decay_widths, output=_read_decaying, forms=None)
def nonlinear_memory(weight: Tensor, transition: Tensor, heads: int, key_size: int, reads: bool = True) -> Step:
    """A memory for each head through which a matrix and tanh pass: S_t = f S_{t-1} + (1 - f) tanh(S_{t-1} W + k v^T).

    S is `[heads, key_size, values]`, `transition` is W `[heads, values, values]`, and x is the value `[heads, values]`.
    The weight has f `[heads]`, the query and the key `[heads, key_size]`, and `reads` is as for `decaying_memory`.

    Mishra, Tan, Stoica, Gonzalez, Dao, "M2RNN: Non-Linear RNNs with Matrix-Valued States", 2026.
    """

    def step(x: Tensor, memory: Tensor) -> State:
        _, key, value = queries_keys_values(torch.cat((weight[..., heads:], x), dim=-1), heads, key_size, reads)
        memory = memory.unflatten(-1, (heads, key_size, -1))
        candidate = (memory @ transition + key[..., None] * value[..., None, :]).tanh()
        return (torch.lerp(candidate, memory, weight[..., :heads, None, None]).flatten(1),)

    return step


def written_keys(keys: Tensor, rates: Tensor, key_rate: Tensor) -> Tensor:
    """Return k~ = k o (1 + (a - 1) o key_rate) of `rwkv7`, from k and a `[..., heads * key_size]`."""
    return keys * (1 + (rates - 1) * key_rate)


def erased_and_written(
    keys: Tensor, rates: Tensor, key_scale: Tensor, key_rate: Tensor, epsilon: float
) -> tuple[Tensor, Tensor]:
    """Return u and k~ of `rwkv7` `[..., heads, key_size]`, from k `[..., heads, key_size]` and a `[..., keys]`."""
    erased = normalize(keys * key_scale.unflatten(0, (keys.shape[-2], -1)), dim=-1, eps=epsilon)
    return erased, written_keys(keys.flatten(-2), rates, key_rate).unflatten(-1, (keys.shape[-2], -1))


@operation(states=("S",), check=_check_rates, widths=_rate_widths, weights=_rates, output=_read_erased, forms=None)
def rwkv7(
    weight: Tensor,
    decay_bias: Tensor,
    rate_weight: Tensor,
    rate_bias: Tensor,
    key_scale: Tensor,
    key_rate: Tensor,
    heads: int,
    key_size: int,
    epsilon: float = 1e-12,
    reads: bool = True,
) -> Step:
    """RWKV-7's memory of each head: S_t = (diag(w) - (a o u) u^T) S_{t-1} + k~ v^T, read as y_t = S_t^T r_t.

    x has the query r, the key k and the value v, `[heads, features]` each, and then d and e with fewer features. The
    decays are w = exp(-e^(-1/2) s(D tanh(d) + b)), with the weight D `[heads * key_size, features]` and b `decay_bias`.
    The rates of learning are a = s(E e + c), with E `rate_weight` and c `rate_bias`.

    u is k o `key_scale` divided by max(|.|, epsilon) in each head. k~ is k o (1 + (a - 1) o `key_rate`). Without
    `reads`, x has no query, and the outputs have 0 features.

    Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", 2025.
    """
    log_decay, rate = weight.chunk(2, dim=-1)
    decay = log_decay.exp().unflatten(-1, (heads, key_size, 1))

    def step(x: Tensor, memory: Tensor) -> State:
        _, key, value = queries_keys_values(x[..., : -2 * rate_weight.shape[-1]], heads, key_size, reads)
        memory = memory.unflatten(-1, (heads, key_size, -1))
        erased, written = erased_and_written(key, rate, key_scale, key_rate, epsilon)
        found = torch.einsum("bhk,bhkv->bhv", erased, memory)
        removed = (rate.unflatten(-1, (heads, -1)) * erased)[..., None] * found[..., None, :]
        return ((decay * memory - removed + written[..., None] * value[..., None, :]).flatten(1),)

    return step
