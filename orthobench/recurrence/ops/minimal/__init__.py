"""minGRU and minLSTM: Feng et al., "Were RNNs All We Needed?", 2024."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from orthobench.recurrence.call import Form, State, Step
from orthobench.recurrence.operation import operation


def minimal_terms(gates: tuple[Tensor, ...], positive: bool) -> tuple[Tensor, Tensor]:
    """Return a and g in h_t = a o h_{t-1} + (1 - a) o g. The blocks are z, c for minGRU, or f, i, c for minLSTM."""
    *first, candidate = gates
    if positive:
        candidate = torch.where(candidate >= 0, candidate + 0.5, candidate.sigmoid())
    # By logarithms, because the quotient of two sigmoids that underflow is NaN.
    exponent = -first[0] if len(first) == 1 else logsigmoid(first[0]) - logsigmoid(first[1])
    return exponent.sigmoid(), candidate


def _forms(n: int) -> Iterator[Form]:
    yield Form({"positive": True})
    yield Form({"positive": False})


@operation(gates=2, diagonal=True, forms=_forms)
def min_gru(weight: Tensor, positive: bool = True) -> Step:
    """minGRU: h_t = (1 - z_t) o h_{t-1} + z_t o g(c_t), z = s(.), of independent units.

    The weight is the bias `[2n]` of the inputs' blocks z, c. With `positive`, g(c) is c + 1/2 above 0 and s(c) below;
    otherwise it is c.
    """

    def step(x: Tensor, h: Tensor) -> State:
        a, g = minimal_terms((x + weight).chunk(2, dim=-1), positive)
        return (a * h + (1 - a) * g,)

    return step


@operation(gates=3, diagonal=True, forms=_forms)
def min_lstm(weight: Tensor, positive: bool = True) -> Step:
    """minLSTM: h_t = f' o h_{t-1} + i' o g(c_t), f' = s(f) / (s(f) + s(i)) and i' = 1 - f', of independent units.

    The weight is the bias `[3n]` of the inputs' blocks f, i, c. With `positive`, g is as in `min_gru`.
    """

    def step(x: Tensor, h: Tensor) -> State:
        a, g = minimal_terms((x + weight).chunk(3, dim=-1), positive)
        return (a * h + (1 - a) * g,)

    return step
