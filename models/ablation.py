"""The AntisymmetricRNN paper's ablation: its gated model with a free matrix in place of the antisymmetric one.

    h_t = h_{t-1} + eps sigmoid(M h_{t-1} + V_z x_t + b_z) o tanh(M h_{t-1} + V_h x_t + b_h)

Chang, Chen, Haber, Chi, ICLR 2019, section 5.3. The term -gamma I is dropped, because a free diagonal can represent it.
"""

from __future__ import annotations

from pydantic import Field
from torch import Tensor

from orthobench.model import Count, Learns

from .antisymmetric import EulerSettings
from .antisymmetric_gated import AntisymmetricGated


class AblationSettings(EulerSettings):
    hidden_size: Count = Field(196, description="number of hidden units n")


class Ablation(AntisymmetricGated):
    version = 1
    title = "ablation of AntisymmetricRNN"
    cites = "chang2019"
    look = "dashdot diamond"
    family = "ODE"
    learns = Learns("adding", 0.4, {"step_size": 0.1}, gate={"learning_rate": 0.03})
    Settings = AblationSettings

    @staticmethod
    def entries(n: int) -> int:
        return n * n

    def weight(self) -> Tensor:
        return self.recurrent_entries.view(self.hidden_size, self.hidden_size)
