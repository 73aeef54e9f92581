"""The decaying memories by PyTorch's operations, one chunk of steps at a time, for CUDA.

A memory of Mamba-3 has one decay, so a chunk is masked attention, and the memories after the chunks are sums (Dao, Gu,
ICML 2024). Without readings the final memory is a single sum over all steps.

A memory of RWKV-7 has a decay for each row. Divided by the decays P_t since the chunk's start, S_t / P_t changes only
by what is erased and written, with e_t = S_{t-1}^T u_t:

    S_t / P_t = S_0 + sum over i <= t of (k~_i / P_i) v_i^T - (a_i o u_i / P_i) e_i^T

So the e of a chunk solve a unit lower triangular system, whose right side is linear in S_0. A chunk as a whole
multiplies the memory by a matrix and adds another, and the loop over the chunks is one product each. A decay is above
e^(-0.61), so 1 / P_t is at most e^(0.61 CHUNK), which float32 holds.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.cuda.chunks import cut, joined, watch
from orthobench.recurrence.kernels import Kernel, kernel
from orthobench.recurrence.ops.memories import decaying_memory, erased_and_written, queries_keys_values, rwkv7

CHUNK = 64
"""Steps of a chunk of Mamba-3; the work of a chunk grows with their square."""

ERASED_CHUNK = 32
"""Steps of a chunk of RWKV-7, whose quotients e^(0.61 ERASED_CHUNK) lose a digit where 64 steps lose two."""


@kernel(decaying_memory, "cuda")
class Memories(Kernel):
    """The kernel of `decaying_memory`: operations of torch, which autograd differentiates."""

    @classmethod
    def run(cls, call: Call) -> Result:
        x, weight, (start,) = call.x, call.weight, call.state
        heads, keys, reads = (call.parameters[name] for name in ("heads", "key_size", "reads"))
        assert isinstance(x, Tensor)
        assert isinstance(weight, Tensor)
        query, key, value = queries_keys_values(torch.cat((weight[..., heads:], x), dim=-1), heads, keys, reads)
        decay, memory = weight[..., :heads, None], start.unflatten(-1, (heads, keys, -1))
        steps = len(x)
        length = CHUNK if reads or call.trace is not None else steps
        key, value, decay = (cut(each, length) for each in (key, value, decay))
        since, until = decay.cumsum(-2), _until_end(decay)
        additions = (until.exp() * key).mT @ value
        memories = [memory]
        for scale, addition in zip(since[..., -1:, :].exp().unbind(0), additions.unbind(0), strict=True):
            memories.append(torch.addcmul(addition, scale, memories[-1]))
        outputs = x[..., :0]
        if reads:
            query = cut(query, length)
            causal = torch.ones(length, length, dtype=torch.bool, device=x.device).tril()
            # Each sum has its own terms, because a difference of two long sums would lose the small ones.
            between = (decay * causal.tril(-1)).cumsum(-2).masked_fill(~causal, -torch.inf).exp()
            read = (query @ key.mT * between) @ value + (since.exp() * query) @ torch.stack(memories[:-1])
            outputs = joined(read, steps)
        watch(call, outputs, memories[1:], length)
        return outputs, (memories[-1].flatten(1),)


@kernel(rwkv7, "cuda")
class RWKV7(Kernel):
    """The kernel of `rwkv7`: operations of torch, which autograd differentiates."""

    @classmethod
    def run(cls, call: Call) -> Result:
        x, (start,), parameters = call.x, call.state, call.parameters
        heads, keys, epsilon, reads = (parameters[name] for name in ("heads", "key_size", "epsilon", "reads"))
        assert isinstance(x, Tensor)
        assert isinstance(call.weight, Tensor)
        assert rwkv7.weights is not None
        steps, length = len(x), ERASED_CHUNK
        weight = rwkv7.weights(x, call.weight, **parameters)
        log_decay, rate = weight.chunk(2, dim=-1)
        query, key, value = queries_keys_values(x[..., : -2 * parameters["rate_weight"].shape[-1]], heads, keys, reads)
        erased, written = erased_and_written(key, rate, parameters["key_scale"], parameters["key_rate"], epsilon)
        removed = rate.unflatten(-1, (heads, keys)) * erased
        sources = value, erased, written, removed, log_decay.unflatten(-1, (heads, keys))
        value, erased, written, removed, decay = (cut(each, length) for each in sources)
        since, before = decay.cumsum(-2), pad(decay[..., :-1, :], (0, 0, 1, 0)).cumsum(-2)
        growth, kept = since.neg().exp(), _until_end(decay).exp()
        changed = torch.cat((removed, written), dim=-2)
        grown, ending = changed * growth.repeat(1, 1, 1, 2, 1), changed * kept.repeat(1, 1, 1, 2, 1)
        found = before.exp() * erased
        by_removed, by_written = (found @ grown.mT).split(length, dim=-1)
        known, unknown = torch.linalg.solve_triangular(
            by_removed.tril(-1),
            torch.cat((by_written.tril(-1) @ value, found), dim=-1),
            upper=False,
            unitriangular=True,
        ).split((value.shape[-1], keys), dim=-1)
        ends_removed, ends_written = ending.mT.split(length, dim=-1)
        factors = torch.diag_embed(since[..., -1, :].exp()) - ends_removed @ unknown
        additions = ends_written @ value - ends_removed @ known
        memories = [start.unflatten(-1, (heads, keys, -1)).flatten(0, 1)]
        for addition, factor in zip(additions.flatten(1, 2).unbind(0), factors.flatten(1, 2).unbind(0), strict=True):
            memories.append(torch.baddbmm(addition, factor, memories[-1]))
        outputs = x[..., :0]
        if reads:
            query = since.exp() * cut(query, length)
            memory = torch.stack(memories[:-1]).unflatten(1, (-1, heads))
            by_removed, by_written = (query @ grown.mT).split(length, dim=-1)
            read = query @ memory + by_written.tril() @ value - by_removed.tril() @ (known + unknown @ memory)
            outputs = joined(read, steps)
        watch(replace(call, weight=weight), outputs, memories[1:], length)
        return outputs, (memories[-1].reshape(start.shape),)


def _until_end(decay: Tensor) -> Tensor:
    """Return the sums of the decays after each step of a chunk, in axis -2."""
    return pad(decay[..., 1:, :], (0, 0, 0, 1)).flip(-2).cumsum(-2).flip(-2)
