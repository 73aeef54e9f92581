"""GORU, the gated orthogonal recurrent unit: a GRU's gates around an orthogonal product of rotations.

    r = sigmoid(W_r h_{t-1} + U_r x_t + b_r),   g = sigmoid(W_g h_{t-1} + U_g x_t + b_g)
    h_t = g o h_{t-1} + (1 - g) o modReLU(r o (Q h_{t-1}) + U_c x_t; b_c)

L. Jing, C. Gulcehre, J. Peurifoy, Y. Shen, M. Tegmark, M. Soljacic, Y. Bengio, "Gated Orthogonal Recurrent Units: On
Learning to Forget", Neural Computation 31, 2019. Q is the real product of EURNN (`models/eurnn.py`), by default in the
FFT style. As in the program, modReLU uses |z| + 0.001 as the modulus. W_r and W_g are free.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn

from orthobench.matrices.initial import glorot_vector_
from orthobench.matrices.rotations import rotation_product
from orthobench.model import Learns, Model, Signature, State
from orthobench.recurrence import Activation, GradientTrace, Kind, Projection, gru

from .eurnn import RotationSettings, random_angles, start_output


class GORUSettings(RotationSettings):
    style: Literal["tunable", "fft"] = "fft"


class GORU(Model):
    version = 1
    step_matrices = ("Q",)
    matrix_methods = ("product",)
    title = "GORU"
    paper = "Jing et al. Gated Orthogonal Recurrent Units: On Learning to Forget. Neural Computation 31, 2019"
    cites = "jing2019"
    look = "dot triangle-up"
    family = "gated"
    learns = Learns("adding", 0.4)
    cost = "three products per step, one after another"
    Settings = GORUSettings
    matrix_parameters = ("theta",)
    activation = Activation(Kind.MODRELU, epsilon=0.001)

    def __init__(self, settings: GORUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.rotations = settings.rotations()
        self.input_weight = nn.Parameter(torch.empty(3 * n, m).uniform_(-0.01, 0.01, generator=generator))
        self.gate_weight = nn.Parameter(torch.empty(2 * n, n).uniform_(-0.01, 0.01, generator=generator))
        gate_g = glorot_vector_(torch.empty(n), generator)
        self.gate_bias = nn.Parameter(torch.cat((torch.full((n,), 2.0), gate_g)))
        self.candidate_bias = nn.Parameter(torch.full((n,), 0.01))
        self.theta = random_angles(self.rotations.angle_count, generator)
        start_output(self, signature, generator)

    def product(self) -> Tensor:
        """Return Q `[n, n]`."""
        return rotation_product(self.rotations, self.rotations.by_layer(self.theta))

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = Projection(inputs, self.input_weight, nn.functional.pad(self.gate_bias, (0, self.hidden_size)))
        weight = torch.cat((self.gate_weight, self.product()))
        activation, bias = self.activation, self.candidate_bias
        return gru(x, weight, state, trace, reset_after=True, activation=activation, activation_bias=bias)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        w_r, w_g = self.gate_weight.chunk(2)
        return {"W_r": w_r, "W_g": w_g, "Q": self.product()}
