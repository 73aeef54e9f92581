"""LinOSS: Rusch, Rus, "Oscillatory State-Space Models", ICLR 2025."""

from __future__ import annotations

from torch import Tensor

from orthobench.recurrence.call import State, Step
from orthobench.recurrence.operation import operation


@operation(states=("y", "z"), diagonal=True, rows=4)
def oscillators(weight: Tensor) -> Step:
    """z_t = a z_{t-1} + b y_{t-1} + c x_t, y_t = y_{t-1} + d z_t of independent units: LinOSS.

    The weight is a, b, c, d one after another, `[4n]`. A step's 2 x 2 matrix of (y, z) has the determinant a.
    """
    a, b, c, d = weight.chunk(4)

    def step(x: Tensor, y: Tensor, z: Tensor) -> State:
        z = a * z + b * y + c * x
        return y + d * z, z

    return step
