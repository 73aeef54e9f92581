"""LEM: Rusch, Mishra, Erichson, Mahoney, "Long Expressive Memory for Sequence Modeling", ICLR 2022."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import Form, State, Step
from orthobench.recurrence.operation import operation


@operation(states=("y", "z"), gates=4, forms=lambda n: [Form({"step_size": 0.7})])
def lem(weight: Tensor, step_size: float) -> Step:
    """Two states with learnt step lengths, a = dt s(gate): z_t = (1 - a) z_{t-1} + a tanh(.), y_t likewise.

    The blocks are in this order: z's gate, z's candidate, y's gate, y's candidate. The last reads z_t, and the others
    read y_{t-1}.
    """
    n = weight.shape[1]
    from_y, from_z = weight[: 3 * n].T, weight[3 * n :].T

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        gate_z, candidate_z, gate_y = torch.addmm(x[:, : 3 * n], y, from_y).chunk(3, dim=-1)
        length_z, length_y = step_size * gate_z.sigmoid(), step_size * gate_y.sigmoid()
        z = (1 - length_z) * z + length_z * candidate_z.tanh()
        return (1 - length_y) * y + length_y * torch.addmm(x[:, 3 * n :], z, from_z).tanh(), z

    return step
