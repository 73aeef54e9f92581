"""coRNN: Rusch, Mishra, "Coupled Oscillatory Recurrent Neural Network", ICLR 2021."""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.call import Form, State, Step
from orthobench.recurrence.operation import operation

_FORM = Form({"step_size": 0.3, "frequency": 2.7, "damping": 1.3})


@operation(states=("y", "z"), sources=2, forms=lambda n: [_FORM])
def cornn(weight: Tensor, step_size: float, frequency: float, damping: float) -> Step:
    """Coupled oscillators: z_t = z_{t-1} + dt (tanh(x_t + W [y_{t-1}; z_{t-1}]) - gamma y_{t-1} - eps z_{t-1}),
    y_t = y_{t-1} + dt z_t.

    dt, gamma and eps are `step_size`, `frequency` and `damping`.
    """

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        force = torch.addmm(x, torch.cat((y, z), dim=-1), weight.T).tanh()
        z = z + step_size * (force - frequency * y - damping * z)
        return y + step_size * z, z

    return step
