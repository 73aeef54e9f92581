"""LSTM without peepholes, with a constant forget bias (Hochreiter and Schmidhuber 1997; Gers et al. 2000).

    i, f, g, o = W x_t + R h_{t-1} + b
    c_t = sigmoid(f + beta) o c_{t-1} + sigmoid(i) o tanh(g),   h_t = sigmoid(o) o tanh(c_t)

The cell starts as TensorFlow 1's basic cell, which the scoRNN papers used. The stacked (m + n) x 4n matrix is one
Glorot-uniform kernel; biases and states start at 0. The forget bias beta is added to the pre-activation, not trained.
The AntisymmetricRNN paper (Chang et al. 2019) initialises all models differently: W from N(0, 1 / m) and R from N(0,
sigma^2 / n). The setting `recurrent_scale` is its sigma.

torch.nn.LSTM has two biases, one added to W x_t and one to R h_{t-1}, which both start as U(-1/sqrt(n), 1/sqrt(n)).
`bias_start=torch` does the same. It matters because the sum of two trained biases moves twice as far in a step of Adam.

In the uRNN papers' baseline programs a full matrix also maps the new cell state to the output gate. With
`cell_to_output`, h_t = sigmoid(o + P c_t) o tanh(c_t). The published sizes do not count P (D-31).
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Learns, Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace, Projection, lstm


class LSTMSettings(ModelSettings):
    forget_bias: float = Field(1.0, description="beta, added to the pre-activation of the forget gate")
    recurrent_scale: float | None = Field(
        None,
        ge=0,
        description="sigma; W is drawn from N(0, 1/m) and R from N(0, sigma^2/n); none: one Glorot-uniform kernel",
        json_schema_extra={"neutral": None},
    )
    bias_start: Literal["zeros", "torch"] = Field(
        "zeros",
        description="the biases and their start; zeros: one, 0; torch: two, U(-1/sqrt(n), 1/sqrt(n)) each, as in "
        "torch.nn.LSTM",
        json_schema_extra={"neutral": "zeros"},
    )
    cell_to_output: bool = Field(
        False,
        description="add P c_t to the pre-activation of the output gate, with a full matrix P; slow",
        json_schema_extra={"neutral": False},
    )


class LSTM(Model):
    version = 1
    title = "LSTM"
    paper = "Hochreiter, Schmidhuber. Long Short-Term Memory. Neural Computation 9, 1997"
    cites = "hochreiter1997"
    look = "solid square"
    family = "gated"
    learns = Learns("adding", 0.2)
    cost = "four products per step"
    Settings = LSTMSettings

    forget_offset: Tensor

    def __init__(self, settings: LSTMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        kernel = torch.empty(4 * n, m + n)
        if settings.recurrent_scale is None:
            bound = math.sqrt(6 / (m + n + 4 * n))
            nn.init.uniform_(kernel, -bound, bound, generator=generator)
        else:
            kernel.normal_(generator=generator)
            kernel[:, :m] /= math.sqrt(m)
            kernel[:, m:] *= settings.recurrent_scale / math.sqrt(n)
        # Clones, because each part of the kernel would otherwise be stored with the whole of it.
        self.input_weight = nn.Parameter(kernel[:, :m].clone())
        self.recurrent_weight = nn.Parameter(kernel[:, m:].clone())
        self.bias = nn.Parameter(torch.zeros(4 * n))
        self.recurrent_bias = None
        if settings.bias_start == "torch":
            torch_linear_(self.bias, n, generator)
            self.recurrent_bias = nn.Parameter(torch_linear_(torch.empty(4 * n), n, generator))
        self.cell_weight = None
        if settings.cell_to_output:
            self.cell_weight = nn.Parameter(nn.init.xavier_uniform_(torch.empty(n, n), generator=generator))
        self.shifts_forget_gate = settings.forget_bias != 0
        offset = torch.zeros(4, n)
        offset[1] = settings.forget_bias
        self.register_buffer("forget_offset", offset.flatten())

    def initial_state(self, batch_size: int) -> State:
        return super().initial_state(batch_size) * 2

    def state_parts(self) -> dict[str, slice]:
        return {"h": slice(0, self.features), "c": slice(self.features, 2 * self.features)}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        bias = self.bias if self.recurrent_bias is None else self.bias + self.recurrent_bias
        if self.shifts_forget_gate:
            bias = bias + self.forget_offset
        x = Projection(inputs, self.input_weight, bias)
        return lstm(x, self.recurrent_weight, state, trace, self.cell_weight)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_i", "W_f", "W_g", "W_o"), self.recurrent_weight.chunk(4), strict=True))
