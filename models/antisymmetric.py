"""AntisymmetricRNN: a forward-Euler step of an ODE whose Jacobian's eigenvalues are almost imaginary.

    h_t = h_{t-1} + eps tanh((M - M^T - gamma I) h_{t-1} + V x_t + b)

B. Chang, M. Chen, E. Haber, E. Chi, "AntisymmetricRNN: A Dynamical System View on Recurrent Neural Networks", ICLR
2019. M is a strictly upper triangular matrix. Start: V ~ N(0, 1 / m), M ~ N(0, sigma^2 / n), b = 0. The paper does not
report its choices of eps, gamma, sigma, optimiser and learning rate per task, so the defaults are our choices from its
grids.
"""

from __future__ import annotations

import math
from typing import ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.skew import skew
from orthobench.model import Learns, Model, ModelSettings, OptimizerName, Positive, SecondAxis, Signature, State
from orthobench.recurrence import TANH, GradientTrace, Projection, recurrence


class EulerSettings(ModelSettings):
    optimizer: OptimizerName = "adagrad_tf1"
    learning_rate: Positive = 0.1
    step_size: Positive = Field(0.01, description="eps, the length of one Euler step")
    recurrent_scale: float = Field(1.0, ge=0, description="sigma; M is drawn from N(0, sigma^2 / n)")


class AntisymmetricSettings(EulerSettings):
    diffusion: float = Field(0.01, ge=0, description="gamma, subtracted from the diagonal of W")


class Antisymmetric(Model):
    version = 1
    step_matrices: tuple[str, ...] = ("I_plus_eps_W",)
    matrix_methods = ("weight",)
    title = "AntisymmetricRNN"
    paper = "Chang, Chen, Haber, Chi. AntisymmetricRNN: A Dynamical System View on RNNs. ICLR 2019"
    cites = "chang2019"
    look = "dash circle"
    family = "ODE"
    learns = Learns("adding", 0.9, {"step_size": 0.1}, gate={"learning_rate": 0.03})
    second_axis: ClassVar = SecondAxis(
        ({"step_size": 0.01}, {"step_size": 0.1}, {"step_size": 1.0}), "the paper's grid of eps"
    )
    Settings: ClassVar[type[EulerSettings]] = AntisymmetricSettings
    inputs_per_unit: ClassVar[int] = 1

    def __init__(self, settings: EulerSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.step_size = self.euler_step = settings.step_size
        self.diffusion = settings.diffusion if isinstance(settings, AntisymmetricSettings) else 0.0
        width = self.inputs_per_unit * n
        self.input_weight = nn.Parameter(torch.randn(width, m, generator=generator) / math.sqrt(m))
        self.bias = nn.Parameter(torch.zeros(width))
        self.recurrent_entries = nn.Parameter(
            settings.recurrent_scale / math.sqrt(n) * torch.randn(self.entries(n), generator=generator)
        )

    @staticmethod
    def entries(n: int) -> int:
        """Return the number of trained entries of M."""
        return n * (n - 1) // 2

    def weight(self) -> Tensor:
        """Return M - M^T - gamma I, `[n, n]`."""
        antisymmetric = skew(self.recurrent_entries, self.hidden_size)
        identity = torch.eye(self.hidden_size, dtype=antisymmetric.dtype, device=antisymmetric.device)
        return antisymmetric - self.diffusion * identity

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = Projection(inputs, self.input_weight, self.bias)
        return recurrence(x, self.weight(), state, trace, TANH, step_size=self.step_size)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return W, and I + eps W, by which a step multiplies the state where tanh has slope 1."""
        weight = self.weight()
        identity = torch.eye(self.hidden_size, dtype=weight.dtype, device=weight.device)
        return {"W": weight, "I_plus_eps_W": identity + self.step_size * weight}
