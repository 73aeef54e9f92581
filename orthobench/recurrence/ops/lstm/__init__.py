"""LSTM: Hochreiter, Schmidhuber, "Long Short-Term Memory", Neural Computation 1997, with a forget gate."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation


def _check_cell_weight(n: int, cell_weight: Tensor | None) -> str | None:
    if cell_weight is not None and cell_weight.shape != (n, n):
        return f"cell_weight {list(cell_weight.shape)} should be [{n}, {n}]"
    return None


@operation(states=("h", "c"), gates=4, check=_check_cell_weight)
def lstm(weight: Tensor, cell_weight: Tensor | None = None) -> Step:
    """LSTM without peepholes: c_t = s(f) c_{t-1} + s(i) tanh(g), h_t = s(o) tanh(c_t).

    The gates are in the order i, f, g, o (torch's). With P = `cell_weight` `[n, n]`, h_t = s(o + P c_t) tanh(c_t).
    """

    def step(x: Tensor, h: Tensor, c: Tensor) -> State:
        i, f, g, o = torch.addmm(x, h, weight.T).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        if cell_weight is not None:
            o = torch.addmm(o, c, cell_weight.T)
        return o.sigmoid() * c.tanh(), c

    return step
