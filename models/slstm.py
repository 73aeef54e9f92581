"""sLSTM: an LSTM with an exponential input gate, a normaliser, and recurrent weights within heads.

    i, f, z, o = W x_t + R h_{t-1} + b
    m_t = max(log f' + m_{t-1}, i),   f' = sigmoid(f) or exp(f)
    c_t = exp(log f' + m_{t-1} - m_t) o c_{t-1} + exp(i - m_t) o tanh(z)
    n_t = exp(log f' + m_{t-1} - m_t) o n_{t-1} + exp(i - m_t)
    h_t = sigmoid(o) o c_t / n_t

M. Beck et al., "xLSTM: Extended Long Short-Term Memory", NeurIPS 2024. The stabiliser m keeps the exponentials at most
1, and h does not depend on it. The states start at 0, and m_1 = i, as in the authors' program. R is zero between
heads: each head has matrices `[d, d]`, d = n / heads.

The cell starts as in the program. W is drawn from N(0, 2 / (5 m)), R is 0, and b is 0 except for the forget gate. With
`forget_start=powerlaw` unit j of a head has the bias 5 - 12 (j / (d - 1))^0.3, as in the program's first block. With
`forget_start=linear` the bias increases from 3 to 6.

In the program i and f read a convolution of four inputs, the input maps act within heads too, and a norm and a residual
block surround the cell. Here the model is the cell alone with a full W; the setting `block` adds a block to any cell.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Learns, Model, Signature, State
from orthobench.recurrence import GradientTrace, Projection, slstm, spread_heads

from ._xlstm import XLSTMSettings, input_scale


class SLSTMSettings(XLSTMSettings):
    forget_start: Literal["powerlaw", "linear"] = Field(
        "powerlaw", description="start of the forget gate's bias in each head; powerlaw: from 5 to -7; linear: 3 to 6"
    )
    recurrent_start: Literal["zeros", "uniform"] = Field(
        "zeros", description="start of R; uniform: U(-1 / sqrt(n), 1 / sqrt(n))"
    )


class SLSTM(Model):
    version = 1
    title = "sLSTM"
    paper = "Beck et al. xLSTM: Extended Long Short-Term Memory. NeurIPS 2024"
    cites = "beck2024"
    look = "longdashdot star"
    family = "gated"
    learns = Learns("adding", 0.2)
    cost = (
        "products of n^2 / heads for each of four gates, an exponential each for i and f, a division, and three states"
    )
    Settings = SLSTMSettings

    def __init__(self, settings: SLSTMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n, size = signature.input_size, settings.hidden_size, settings.head_size
        self.heads = settings.heads
        self.exponential_forget = settings.forget_gate == "exponential"
        self.input_weight = nn.Parameter(input_scale(m) * torch.randn(4 * n, m, generator=generator))
        blocks = torch.zeros(4, settings.heads, size, size)
        if settings.recurrent_start == "uniform":
            torch_linear_(blocks, n, generator)
        self.recurrent_blocks = nn.Parameter(blocks)
        bias = torch.zeros(4, settings.heads, size)
        fraction = torch.linspace(0, 1, size)
        bias[1] = 5 - 12 * fraction**0.3 if settings.forget_start == "powerlaw" else 3 + 3 * fraction
        self.bias = nn.Parameter(bias.flatten())

    def initial_state(self, batch_size: int) -> State:
        return super().initial_state(batch_size) * 4

    def state_parts(self) -> dict[str, slice]:
        n = self.features
        return {name: slice(k * n, (k + 1) * n) for k, name in enumerate(slstm.states)}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = Projection(inputs, self.input_weight, self.bias)
        return slstm(x, self.columns(), state, trace, self.exponential_forget, self.heads)

    def columns(self) -> Tensor:
        """Return R without the zeros between heads, `[4n, d]`."""
        return self.recurrent_blocks.flatten(0, 2)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        weight = spread_heads(self.columns(), self.heads)
        return dict(zip(("R_i", "R_f", "R_z", "R_o"), weight.chunk(4), strict=True))
