"""coRNN: n coupled oscillators, damped and driven by the inputs.

    z_t = z_{t-1} + dt (tanh(W_y y_{t-1} + W_z z_{t-1} + V x_t + b) - gamma y_{t-1} - eps z_{t-1})
    y_t = y_{t-1} + dt z_t

T. K. Rusch, S. Mishra, "Coupled Oscillatory Recurrent Neural Network (coRNN)", ICLR 2021. y is the position, which the
output map reads, and z the velocity; both start at 0. As in the program, W_y, W_z, V and b are one linear map of m + 2n
inputs. This map and the output map start as torch's Linear, and the damping acts on z_{t-1}, not on z_t. The program
for noise-padded CIFAR-10 has three linear maps instead (`maps=three`). The defaults are the paper's values for
sequential MNIST. Permuted MNIST: dt 0.076, gamma 0.4, eps 8, rate 0.0054. Adding: n = 128, dt 0.06, gamma 66, eps 15,
rate 0.02.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import (
    Count,
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
from orthobench.recurrence import GradientTrace, cornn, project


class CoRNNSettings(ModelSettings):
    hidden_size: Count = Field(256, description="number of oscillators n")
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 0.0021
    output_bias: OutputBias = "linear"
    step_size: Positive = Field(0.042, description="dt, the length of one time step")
    frequency: float = Field(2.7, ge=0, description="gamma, the squared frequency of the oscillators")
    maps: Literal["one", "three"] = Field(
        "one",
        description="linear maps that set the scale of the initial weights; one: of x, y and z, U(-1/sqrt(m + 2n), "
        "1/sqrt(m + 2n)); three: of each alone, by its own number of inputs",
        json_schema_extra={"neutral": "one"},
    )
    damping: float = Field(4.7, ge=0, description="eps, the damping of the velocity z")


class CoRNN(Model):
    version = 1
    title = "coRNN"
    paper = "Rusch, Mishra. Coupled Oscillatory Recurrent Neural Network (coRNN). ICLR 2021"
    cites = "rusch2021cornn"
    look = "dashdot star"
    family = "ODE"
    learns = Learns(
        "adding",
        0.3,
        {"learning_rate": 0.02, "step_size": 0.06, "frequency": 66, "damping": 15},
        gate={"learning_rate": 0.02, "step_size": 0.3, "train_size": 30_000},
    )
    second_axis = SecondAxis(
        ({"step_size": 0.042}, {"step_size": 0.06}, {"step_size": 0.3}),
        "the paper's dt for MNIST and for adding; 0.3 gives 100 steps the time of the paper's 500 steps of 0.06",
    )
    Settings = CoRNNSettings

    def __init__(self, settings: CoRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.step_size, self.frequency, self.damping = settings.step_size, settings.frequency, settings.damping
        torch_linear_(self.output_weight, n, generator)
        inputs, states = (m, n) if settings.maps == "three" else (m + 2 * n, m + 2 * n)
        self.input_weight = nn.Parameter(torch_linear_(torch.empty(n, m), inputs, generator))
        self.recurrent_weight = nn.Parameter(torch_linear_(torch.empty(n, 2 * n), states, generator))
        self.bias = nn.Parameter(torch_linear_(torch.empty(n), inputs, generator))

    def initial_state(self, batch_size: int) -> State:
        return super().initial_state(batch_size) * 2

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = project(inputs, self.input_weight, self.bias)
        return cornn(x, self.recurrent_weight, state, trace, self.step_size, self.frequency, self.damping)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_y", "W_z"), self.recurrent_weight.chunk(2, dim=1), strict=True))
