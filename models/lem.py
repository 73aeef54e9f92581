"""LEM, long expressive memory: two states, each with a learnt step length that depends on the input.

    a_t = dt sigmoid(W_1 y_{t-1} + V_1 x_t + b_1),   a'_t = dt sigmoid(W_2 y_{t-1} + V_2 x_t + b_2)
    z_t = (1 - a_t) o z_{t-1} + a_t o tanh(W_z y_{t-1} + V_z x_t + b_z)
    y_t = (1 - a'_t) o y_{t-1} + a'_t o tanh(W_y z_t + V_y x_t + b_y)

T. K. Rusch, S. Mishra, N. B. Erichson, M. W. Mahoney, "Long Expressive Memory for Sequence Modeling", ICLR 2022. The
output map reads y; both states start at 0. As in the program, every parameter of the cell starts as U(-1/sqrt(n),
1/sqrt(n)), and the output weight as N(0, 2/n). Each bias b is the sum of two trained vectors, one of the input's map
and one of the state's map. The defaults are the paper's values for sequential MNIST. Permuted MNIST: dt 0.31, rate
0.0073. Adding: dt 0.0242, rate 0.0026.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Learns, Model, ModelSettings, OptimizerName, OutputBias, Positive, Signature, State
from orthobench.recurrence import GradientTrace, Projection, lem


class LEMSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 0.0018
    output_bias: OutputBias = "linear"
    step_size: float = Field(0.21, gt=0, le=1, description="dt, the longest time step")


class LEM(Model):
    """The cell; the rows of weights and biases are, in order, z's gate and candidate, y's gate and candidate."""

    version = 1
    title = "LEM"
    paper = "Rusch, Mishra, Erichson, Mahoney. Long Expressive Memory for Sequence Modeling. ICLR 2022"
    cites = "rusch2022lem"
    look = "dashdot circle"
    family = "ODE"
    learns = Learns("adding", 0.2, gate={"step_size": 1.0})
    cost = "four products per step, one after another"
    Settings = LEMSettings

    def __init__(self, settings: LEMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        self.step_size = settings.step_size
        if signature.output_size:
            nn.init.kaiming_normal_(self.output_weight, generator=generator)
        self.input_weight = nn.Parameter(torch_linear_(torch.empty(4 * n, m), n, generator))
        self.input_bias = nn.Parameter(torch_linear_(torch.empty(4 * n), n, generator))
        self.recurrent_weight = nn.Parameter(torch_linear_(torch.empty(4 * n, n), n, generator))
        self.recurrent_bias = nn.Parameter(torch_linear_(torch.empty(4 * n), n, generator))

    def initial_state(self, batch_size: int) -> State:
        return super().initial_state(batch_size) * 2

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = Projection(inputs, self.input_weight, self.input_bias + self.recurrent_bias)
        return lem(x, self.recurrent_weight, state, trace, self.step_size)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_1", "W_z", "W_2", "W_y"), self.recurrent_weight.chunk(4), strict=True))
