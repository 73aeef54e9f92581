"""The plain recurrent network (Elman 1990), whose matrix W is unconstrained.

    h_t = tanh(W h_{t-1} + U x_t + b)

The setting `activation` replaces tanh by ReLU or modReLU. Matrices start Glorot-uniform and biases at zero, as in the
baseline programs of the uRNN papers. The initial state is zero, whereas theirs is trained.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Learns, ModelSettings, SecondAxis, Signature
from orthobench.recurrence import MODRELU, RELU, TANH

from ._plain import PlainRNN

_ACTIVATIONS = {"modrelu": MODRELU, "relu": RELU, "tanh": TANH}


class RNNSettings(ModelSettings):
    activation: Literal["tanh", "relu", "modrelu"] = Field("tanh", description="activation of the hidden state")


class RNN(PlainRNN):
    version = 1
    title = "RNN"
    paper = "Elman. Finding Structure in Time. Cognitive Science 14, 1990"
    cites = "elman1990"
    look = "dash square"
    family = "plain"
    learns = Learns(
        "adding",
        0.7,
        {"learning_rate": 1e-4, "sequence_length": 15},
        gate={"learning_rate": 3e-3, "train_size": 30_000},
    )
    second_axis = SecondAxis(
        ({"activation": "tanh"}, {"activation": "relu"}), "Elman 1990; ReLU: Le, Jaitly, Hinton, arXiv 1504.00941"
    )
    Settings = RNNSettings

    def __init__(self, settings: RNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.activation = _ACTIVATIONS[settings.activation]
        self.recurrent_weight = nn.Parameter(torch.empty(n, n))
        for weight in (self.input_weight, self.recurrent_weight):
            nn.init.xavier_uniform_(weight, generator=generator)

    def weight(self) -> Tensor:
        return self.recurrent_weight
