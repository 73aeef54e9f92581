"""The delta rule by PyTorch's operations, one chunk of corrections at a time, for CUDA.

The corrections of a chunk add sum_i k_i u_i^T to the memory S before it, which decays. With the decays e^(b_t) since
the chunk's start, u_t = beta_t (v_t - e^(b_t) S^T k_t - sum over i < t of e^(b_t - b_i) (k_t . k_i) u_i). So U solves a
unit lower triangular system, (I + L) U = beta (V - e^b K S). This is the WY form of the product of Householder
matrices (Bischof, Van Loan 1987), as used by Yang et al. (NeurIPS 2024). All systems are solved at once, and a loop
over the chunks carries S on. Only decays of later steps are computed, never quotients, so nothing overflows.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad

from orthobench.recurrence import reference
from orthobench.recurrence.call import Call, Result
from orthobench.recurrence.kernels import Kernel, kernel
from orthobench.recurrence.ops.delta import delta_rule, unit_heads

CHUNK = 64  # corrections


@kernel(delta_rule, "cuda")
class Delta(Kernel):
    """The kernel of `delta_rule`: operations of torch, which autograd differentiates."""

    @classmethod
    def run(cls, call: Call) -> Result:
        """Run all steps; a trace needs every memory, so that the reference serves it."""
        if call.trace is not None:
            return reference.run(call)
        x, weight, (start,) = call.x, call.weight, call.state
        assert isinstance(x, Tensor)
        assert isinstance(weight, Tensor)
        heads, keys, factors, gated, epsilon, reads = (
            call.parameters[name] for name in ("heads", "key_size", "factors", "gated", "epsilon", "reads")
        )
        steps = len(x)
        q, k, v = unit_heads(x, heads, keys, factors, epsilon, reads)
        beta = weight[..., : factors * heads].unflatten(-1, (factors, heads))
        decay = weight.new_zeros(beta.shape)  # the memory decays before the first correction of a step
        if gated:
            decay = torch.cat((weight[..., None, factors * heads :], decay[..., 1:, :]), dim=-2)
        # A chunk has whole steps. Corrections are in axis -2: [chunks, B, heads, corrections, features].
        length = max(1, CHUNK // factors)
        chunks = -(-steps // length)
        rest = chunks * length - steps

        def cut(tensor: Tensor) -> Tensor:
            padded = pad(tensor, (*(0,) * (2 * tensor.dim() - 1), rest)) if rest else tensor
            parts: Tensor = padded.unflatten(0, (chunks, length))
            return parts.transpose(1, 2).flatten(2, 3).transpose(2, 3)

        k, v, beta, since = cut(k), cut(v), cut(beta[..., None]), cut(decay[..., None]).cumsum(-2)
        read = since[..., factors - 1 :: factors, :]  # the decay since the chunk's start at the end of each step
        system = (beta * _between(since, since) * (k @ k.mT)).tril(-1)
        grown = since.exp()
        values, erased = torch.linalg.solve_triangular(
            system, torch.cat((beta * v, beta * grown * k), dim=-1), upper=False, unitriangular=True
        ).split((v.shape[-1], keys), dim=-1)
        reaching = _between(since[..., -1:, :], since).mT * k
        memory, memories, additions = start.unflatten(-1, (heads, keys, -1)), [], []
        parts = (values, erased, reaching, grown[..., -1:, :])
        for value, erase, keep, scale in zip(*(part.unbind(0) for part in parts), strict=True):
            u = value - erase @ memory
            memories.append(memory)
            additions.append(u)
            memory = scale * memory + keep.mT @ u
        if not reads:
            return x[..., :0], (memory.flatten(1),)
        q = pad(q, (0, 0, 0, 0, 0, 0, 0, rest)).unflatten(0, (chunks, length)).permute(0, 2, 3, 1, 4)
        y = (read.exp() * q) @ torch.stack(memories) + _between(read, since) * (q @ k.mT) @ torch.stack(additions)
        return y.permute(0, 3, 1, 2, 4).flatten(0, 1)[:steps].flatten(2), (memory.flatten(1),)


def _between(later: Tensor, earlier: Tensor) -> Tensor:
    """Return the decay from each correction i to each later t `[..., later, earlier]`, and 0 where i is after t.

    Both arguments are logarithms of decays since the chunk's start, `[..., corrections, 1]`. A query at the end of a
    step comes after the step's corrections.
    """
    count, total = later.shape[-2], earlier.shape[-2]
    step = total // count
    t = torch.arange(count, device=later.device)[:, None] * step + step - 1
    is_after = torch.arange(total, device=later.device) > t
    return (later - earlier.mT).masked_fill(is_after, -torch.inf).exp()
