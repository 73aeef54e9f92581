"""LipschitzRNN: a forward-Euler step of a linear system with a Lipschitz nonlinearity.

    h_t = h_{t-1} + eps (A h_{t-1} + tanh(W h_{t-1} + U x_t + b))
    A = beta (M_A - M_A^T) + (1 - beta) (M_A + M_A^T) - gamma I,   W likewise of M_W

N. B. Erichson, O. Azencot, A. Queiruga, L. Hodgkinson, M. W. Mahoney, "Lipschitz Recurrent Neural Networks", ICLR 2021.
beta turns a matrix from symmetric (0) to skew-symmetric (1). As in the program, A and W share beta and gamma. M_A and
M_W start as N(0, (sigma / n)^2); U, b and the output map start as torch's Linear. The defaults are the paper's values
for pixel-by-pixel MNIST (permuted: rate 0.0035).
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import (
    Learns,
    Model,
    ModelSettings,
    OptimizerName,
    OutputBias,
    Positive,
    SecondAxis,
    Signature,
    State,
)
from orthobench.recurrence import GradientTrace, lipschitz, project


class LipschitzSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 0.003
    output_bias: OutputBias = "linear"
    step_size: Positive = Field(0.03, description="eps, the length of one Euler step")
    skewness: float = Field(0.75, ge=0, le=1, description="beta, the share of the skew-symmetric part of A and W")
    diffusion: float = Field(0.001, ge=0, description="gamma, subtracted from the diagonals of A and W")
    recurrent_scale: float = Field(0.1, ge=0, description="sigma; M_A and M_W are drawn from N(0, (sigma / n)^2)")


class LipschitzRNN(Model):
    version = 1
    step_matrices = ()
    title = "LipschitzRNN"
    paper = "Erichson, Azencot, Queiruga, Hodgkinson, Mahoney. Lipschitz Recurrent Neural Networks. ICLR 2021"
    cites = "erichson2021"
    look = "dashdot square"
    family = "ODE"
    learns = Learns("adding", 0.4, gate={"learning_rate": 0.02, "step_size": 0.1})
    second_axis = SecondAxis(
        ({"step_size": 0.03}, {"step_size": 0.1}, {"step_size": 1.0}),
        "the paper's eps for MNIST; 0.1 and 1 from the grid of Chang et al. 2019, whose Euler step it shares",
    )
    Settings = LipschitzSettings

    def __init__(self, settings: LipschitzSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.euler_step = settings.step_size
        self.step_size, self.skewness, self.diffusion = settings.step_size, settings.skewness, settings.diffusion
        torch_linear_(self.output_weight, n, generator)
        self.input_weight = nn.Parameter(torch_linear_(torch.empty(n, m), m, generator))
        self.bias = nn.Parameter(torch_linear_(torch.empty(n), m, generator))
        scale = settings.recurrent_scale / n
        self.linear_entries = nn.Parameter(scale * torch.randn(n, n, generator=generator))
        self.recurrent_entries = nn.Parameter(scale * torch.randn(n, n, generator=generator))

    def weight(self) -> Tensor:
        """Return A stacked on W, `[2n, n]`."""
        entries = torch.stack((self.linear_entries, self.recurrent_entries))
        identity = torch.eye(self.hidden_size, dtype=entries.dtype, device=entries.device)
        # beta (M - M^T) + (1 - beta) (M + M^T)
        return (entries + (1 - 2 * self.skewness) * entries.mT - self.diffusion * identity).flatten(0, 1)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = project(inputs, self.input_weight, self.bias)
        return lipschitz(x, self.weight(), state, trace, self.step_size)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("A", "W"), self.weight().chunk(2), strict=True))
