"""AntisymmetricRNN with gating: the same matrix in the gate and in the candidate.

    z_t = sigmoid((M - M^T - gamma I) h_{t-1} + V_z x_t + b_z)
    h_t = h_{t-1} + eps z_t o tanh((M - M^T - gamma I) h_{t-1} + V_h x_t + b_h)

Chang, Chen, Haber, Chi, ICLR 2019, section 3.3. V_z starts like V_h, and b_z at 0.
"""

from __future__ import annotations

from torch import Tensor

from orthobench.model import Learns, State
from orthobench.recurrence import GradientTrace, gated_recurrence, project

from .antisymmetric import Antisymmetric


class AntisymmetricGated(Antisymmetric):
    version = 1
    step_matrices = ()
    title = "AntisymmetricRNN with gating"
    cites = "chang2019"
    look = "dot cross"
    family = "ODE"
    learns = Learns("adding", 0.3, {"step_size": 0.1}, gate={"learning_rate": 0.03})
    inputs_per_unit = 2

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = project(inputs, self.input_weight, self.bias)
        return gated_recurrence(x, self.weight(), state, trace, self.step_size)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return W alone: the gate scales each unit's part of eps W."""
        return {"W": self.weight()}
