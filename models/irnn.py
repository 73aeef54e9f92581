"""IRNN: a ReLU network whose recurrent matrix starts as the identity (Le, Jaitly, Hinton 2015).

    h_t = max(W h_{t-1} + U x_t + b, 0),   W = I and b = 0 at the start

As in the uRNN papers' baseline program, U and V start Glorot-uniform, and h_0 is trained, starting at zero.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Learns, ModelSettings, OptimizerName, Signature
from orthobench.recurrence import RELU

from ._plain import PlainRNN


class IRNNSettings(ModelSettings):
    optimizer: OptimizerName = "rmsprop_theano"
    trained_start: bool = Field(True, description="train the initial state h_0; false: h_0 = 0")


class IRNN(PlainRNN):
    version = 1
    title = "IRNN"
    paper = "Le, Jaitly, Hinton. A Simple Way to Initialize Recurrent Networks of Rectified Linear Units. 2015"
    cites = "le2015"
    look = "longdash cross"
    family = "plain"
    learns = Learns(
        "adding", 0.4, {"optimizer": "adam", "learning_rate": 1e-4, "clip_value": 1.0}, gate={"learning_rate": 3e-3}
    )
    Settings = IRNNSettings
    activation = RELU

    def __init__(self, settings: IRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        nn.init.xavier_uniform_(self.input_weight, generator=generator)
        self.recurrent_weight = nn.Parameter(torch.eye(settings.hidden_size))
        if settings.trained_start:
            self.start = nn.Parameter(torch.zeros(settings.hidden_size))

    def weight(self) -> Tensor:
        return self.recurrent_weight
