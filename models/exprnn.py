"""EXPRNN: an orthogonal recurrent matrix by the exponential of a skew-symmetric one.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = exp(A),   A^T = -A

M. Lezcano-Casado, D. Martinez-Rubio, "Cheap Orthogonal Constraints in Neural Networks", ICML 2019. W always has
determinant 1. As in the program, the start "half_circle" uses the Cayley transform's entries -tan(t / 2) as angles.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.exponential import exponential
from orthobench.matrices.initial import as_parameter, exponential_angles, torch_linear_
from orthobench.matrices.skew import block_rotation_entries
from orthobench.model import Count, Learns, OptimizerName, OutputBias, Positive, Signature
from orthobench.recurrence import MODRELU

from ._plain import MatrixSettings, PlainRNN


class EXPRNNSettings(MatrixSettings):
    hidden_size: Count = Field(170, description="number of hidden units n")
    optimizer: OptimizerName = "rmsprop_torch"
    learning_rate: Positive = 7e-4
    recurrent_optimizer: OptimizerName = "rmsprop_torch"
    recurrent_learning_rate: Positive = 7e-5
    initialization: Literal["full_circle", "half_circle"] = Field(
        "full_circle",
        description="start of the angles of A; full_circle: U(-pi, pi); half_circle: -tan(t / 2), t from U(0, pi/2)",
    )
    output_bias: OutputBias = "linear"
    output_start: Literal["linear", "kaiming"] = Field(
        "linear",
        description="start of V; linear: as torch.nn.Linear; kaiming: Kaiming-normal, as in the program for copying; "
        "in a stack, V starts as output_weight says",
    )


class EXPRNN(PlainRNN):
    version = 1
    title = "EXPRNN"
    paper = "Lezcano-Casado, Martinez-Rubio. Cheap Orthogonal Constraints in Neural Networks. ICML 2019"
    cites = "lezcano2019"
    look = "dash star"
    family = "orthogonal"
    learns = Learns("copying", 0.5, gate={"recurrent_learning_rate": 2e-3})
    orthogonal = True
    Settings = EXPRNNSettings
    activation = MODRELU
    matrix_parameters = ("skew_entries",)

    def __init__(self, settings: EXPRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        angles = exponential_angles(settings.initialization, n, generator)
        self.skew_entries = as_parameter(block_rotation_entries(angles, n))
        nn.init.kaiming_normal_(self.input_weight, nonlinearity="relu", generator=generator)
        nn.init.uniform_(self.bias, -0.01, 0.01, generator=generator)
        if not signature.output_size:
            return
        if settings.output_start == "kaiming":
            nn.init.kaiming_normal_(self.output_weight, nonlinearity="relu", generator=generator)
        else:
            with torch.no_grad():
                torch_linear_(self.output_weight, n, generator)

    def weight(self) -> Tensor:
        return exponential(self.skew_entries, self.hidden_size)
