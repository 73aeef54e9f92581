"""IndRNN: independent recurrent units, each with a single recurrent weight.

    h_t = ReLU(u o h_{t-1} + W x_t + b)

S. Li, W. Li, C. Cook, C. Zhu, Y. Gao, "Independently Recurrent Neural Network (IndRNN): Building A Longer and Deeper
RNN", CVPR 2018. The gradient through k steps has the factor u^k, so |u| decides what a unit keeps. The paper enforces
|u| <= gamma^(1/T) for sequences of T steps, with gamma = 2 for ReLU by default. To use this bound, set `bounded_steps`
to T; it is then restored after every optimiser step. At the start u is uniform on an interval. The program uses (0, 1),
and values near the bound in the last layer of long tasks. W and b start as torch's Linear. The authors' program for
plain networks instead draws W from U(-s, s), s = sqrt(6 / (65 m)), a third of that width, and sets b = 0
(`Indrnn_plainnet.py:57`); this is `input_start=kaiming`. It also restores the bound before each step instead of after
it.

The paper's networks have six or more layers with batch normalisation. Here there is a single layer by default;
`layers=6` with `block=residual block_norm=batch` builds a stack (`orthobench.model.stack`), though its blocks differ
from the paper's.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, Positive, SecondAxis, Signature, State
from orthobench.recurrence import RELU, TANH, GradientTrace, independent_recurrence, project

_ACTIVATIONS = {"relu": RELU, "tanh": TANH}


class IndRNNSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 2e-4
    activation: Literal["relu", "tanh"] = Field("relu", description="activation of the hidden state")
    start_low: float = Field(0.0, description="smallest recurrent weight u at the start")
    start_high: float = Field(1.0, description="largest recurrent weight u at the start")
    input_start: Literal["linear", "kaiming"] = Field(
        "linear",
        description="start of W and b; linear: both as torch.nn.Linear; kaiming: W as torch's kaiming_uniform with "
        "a = 8, and b = 0, as in the authors' program",
        json_schema_extra={"neutral": "linear"},
    )
    bounded_steps: Count | None = Field(None, description="T of the bound |u| <= gamma^(1/T); none: no bound")
    gamma: Positive = Field(2.0, description="gamma of the bound, the largest growth of a gradient through T steps")

    @model_validator(mode="after")
    def _check_start(self) -> IndRNNSettings:
        if self.start_low > self.start_high:
            raise ValueError(f"start_low={self.start_low} should be at most start_high ({self.start_high})")
        if self.bound is not None and max(abs(self.start_low), abs(self.start_high)) > self.bound:
            raise ValueError(f"start_low and start_high should be within the bound {self.bound:.6g}")
        return self

    @property
    def bound(self) -> float | None:
        """The largest |u|; None without a bound."""
        return None if self.bounded_steps is None else self.gamma ** (1 / self.bounded_steps)


class IndRNN(Model):
    version = 1
    title = "IndRNN"
    paper = "Li, Li, Cook, Zhu, Gao. Independently Recurrent Neural Network (IndRNN). CVPR 2018"
    cites = "li2018"
    look = "longdash circle"
    family = "plain"
    learns = Learns("adding", 0.2, {"learning_rate": 2e-3, "layers": 2})  # units of one layer never see each other
    second_axis = SecondAxis(
        ({"layers": 1}, {"layers": 2}), "the paper stacks layers, because the units of one never see each other"
    )
    Settings = IndRNNSettings

    def __init__(self, settings: IndRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n, m = settings.hidden_size, signature.input_size
        self.activation, self.bound = _ACTIVATIONS[settings.activation], settings.bound
        weight, bias = torch.empty(n, m), torch.zeros(n)
        if settings.input_start == "kaiming":
            nn.init.kaiming_uniform_(weight, a=8, generator=generator)
        else:
            torch_linear_(weight, m, generator)
            torch_linear_(bias, m, generator)
        self.input_weight, self.bias = nn.Parameter(weight), nn.Parameter(bias)
        start = torch.empty(n).uniform_(settings.start_low, settings.start_high, generator=generator)
        self.recurrent_weight = nn.Parameter(start)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        x = project(inputs, self.input_weight, self.bias)
        return independent_recurrence(x, self.recurrent_weight, state, trace, self.activation)

    @property
    def needs_step_end(self) -> bool:
        return self.bound is not None

    def after_step(self) -> None:
        if self.bound is not None:
            self.recurrent_weight.clamp_(-self.bound, self.bound)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": torch.diag(self.recurrent_weight)}
