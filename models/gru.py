"""GRU: a gated state without a separate memory cell (Cho et al. 2014).

    r, z = sigmoid(W x_t + R h_{t-1} + b),   g = tanh(W_g x_t + R_g (r o h_{t-1}) + b_g)
    h_t = z o h_{t-1} + (1 - z) o g

Kernels start Glorot-uniform, biases and states at zero. With `reset_after` the gate is applied after the product, r o
(R_g h_{t-1} + b'), as in cuDNN, which needs a second bias vector b'.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Learns, Model, ModelSettings, Signature, State
from orthobench.recurrence import GradientTrace, Projection, gru


class GRUSettings(ModelSettings):
    reset_after: bool = Field(
        False, description="apply the reset gate after the product with the recurrent matrix; false: before it"
    )


class GRU(Model):
    version = 1
    title = "GRU"
    paper = "Cho et al. Learning Phrase Representations using RNN Encoder-Decoder. EMNLP 2014"
    cites = "cho2014"
    look = "dash cross"
    family = "gated"
    learns = Learns("adding", 0.2)
    cost = "three products per step, one after another"
    Settings = GRUSettings

    def __init__(self, settings: GRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n = signature.input_size, settings.hidden_size
        kernels = [nn.init.xavier_uniform_(torch.empty(n, k), generator=generator) for k in (m, m, m, n, n, n)]
        self.input_weight = nn.Parameter(torch.cat(kernels[:3]))
        self.recurrent_weight = nn.Parameter(torch.cat(kernels[3:]))
        self.bias = nn.Parameter(torch.zeros(3 * n))
        self.candidate_bias = nn.Parameter(torch.zeros(n)) if settings.reset_after else None
        self.reset_after = settings.reset_after

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = Projection(inputs, self.input_weight, self.bias)
        return gru(x, self.recurrent_weight, state, trace, self.candidate_bias, self.reset_after)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_r", "W_z", "W_g"), self.recurrent_weight.chunk(3), strict=True))
