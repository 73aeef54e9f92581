"""sLSTM: Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence.call import Form, State, Step
from orthobench.recurrence.operation import operation

LARGEST_EXPONENT = 80.0
"""A bound for exponents, whose exponential float32 can hold."""


def _check_whole_heads(n: int, heads: int, **others: bool) -> str | None:
    return f"heads={heads} should divide the {n} features" if heads < 1 or n % heads else None


def spread_heads(blocks: Tensor, heads: int) -> Tensor:
    """Return the matrix `[rows, n]` that is zero between heads, from the heads' own columns `[rows, n / heads]`.

    The rows are `[gates, heads, n / heads]`.
    """
    size = blocks.shape[1]
    own = torch.eye(heads, dtype=blocks.dtype, device=blocks.device)
    return (blocks.view(-1, heads, size, 1, size) * own[:, None, :, None]).reshape(-1, heads * size)


def _forms(n: int) -> Iterator[Form]:
    yield Form({"heads": 2})
    yield Form({"exponential_forget": True})


@operation(states=("h", "c", "n", "m"), gates=4, traced=3, check=_check_whole_heads, forms=_forms)
def slstm(weight: Tensor, exponential_forget: bool = False, heads: int = 1) -> Step:
    """sLSTM: c_t = f' c_{t-1} + i' tanh(z), n_t = f' n_{t-1} + i', h_t = s(o) c_t / n_t, gates in the order i, f, z, o.

    m_t = max(log f + m_{t-1}, i) keeps i' = exp(i - m_t) and f' = exp(log f + m_{t-1} - m_t) at most 1; f is s(.), or
    exp(.) with `exponential_forget`. n is 0 only at the start. There m_t = i, and the first input counts fully, however
    small exp(i) is. No output depends on m.

    The weight has the matrices of each gate and head, `[4, heads, d, d]` as `[4n, d]`, where d = n / heads.
    """
    transposed = spread_heads(weight, heads).T

    def step(x: Tensor, h: Tensor, c: Tensor, n: Tensor, m: Tensor) -> State:
        i, f, z, o = torch.addmm(x, h, transposed).chunk(4, dim=-1)
        faded = m + (f if exponential_forget else logsigmoid(f))
        m = torch.where(n == 0, i, torch.maximum(i, faded))
        keep, write = (faded - m).clamp(max=LARGEST_EXPONENT).exp(), (i - m).exp()
        c, n = keep * c + write * z.tanh(), keep * n + write
        return o.sigmoid() * c / n, c, n, m

    return step
