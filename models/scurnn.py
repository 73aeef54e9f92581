"""scuRNN: a unitary recurrent matrix by the complex scaled Cayley transform, with trained phases.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = (I + A)^{-1} (I - A) D,   y = V [Re h; Im h] + c

n complex units. A is skew-Hermitian, D = diag(e^{i theta_j}), and both are trained with separate optimisers: A by
RMSprop, theta by Adagrad, everything else by Adam. h_0 is trained. K. Maduranga, K. Helfrich, Q. Ye, "Complex Unitary
Recurrent Neural Networks Using Scaled Cayley Transform", AAAI 2019. The gradient is taken with respect to the
independent entries of A. Off the diagonal the program's gradient is half as large, but RMSprop divides by its size, so
only epsilon makes a difference.

The program for copying uses 130 units, phase_learning_rate=1e-4 and output_bias=glorot; the program for adding starts A
on the full circle (D-38).
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.initial import as_parameter, half_circle_angles
from orthobench.matrices.unitary_cayley import unitary_cayley
from orthobench.model import Count, Learns, OptimizerName, ParameterGroup, Positive, Signature

from ._complex import ComplexRNN
from ._plain import MatrixSettings


class ScuRNNSettings(MatrixSettings):
    hidden_size: Count = Field(116, description="number of complex hidden units n")
    optimizer: OptimizerName = "adam_tf1"
    recurrent_optimizer: OptimizerName = Field("rmsprop_scurnn", description="optimiser of A")
    phase_optimizer: OptimizerName = Field("adagrad_tf1", description="optimiser of theta, the angles of D")
    phase_learning_rate: Positive = Field(1e-3, description="learning rate of theta")
    initialization: Literal["half_circle", "full_circle"] = Field(
        "half_circle",
        description="start of the angles of A; half_circle: U(0, pi/2); "
        "full_circle: U(0, 2 pi), as in the program for adding",
    )


class ScuRNN(ComplexRNN):
    version = 1
    title = "scuRNN"
    paper = "Maduranga, Helfrich, Ye. Complex Unitary RNNs Using Scaled Cayley Transform. AAAI 2019"
    cites = "maduranga2019"
    look = "dashdot cross"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"hidden_size": 32, "recurrent_learning_rate": 2e-3})
    orthogonal = True
    Settings = ScuRNNSettings
    matrix_parameters = ("skew_entries",)

    def __init__(self, settings: ScuRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.phase_optimizer, self.phase_learning_rate = settings.phase_optimizer, settings.phase_learning_rate
        angles = half_circle_angles(n, generator)
        if settings.initialization == "full_circle":
            angles = 4 * angles
        entries = torch.zeros(n, n, dtype=torch.float64)
        even = torch.arange(0, 2 * (n // 2), 2)
        entries[even, even + 1] = -torch.tan(angles / 2)  # A is real at the start: see `skew_hermitian`
        self.skew_entries = as_parameter(entries)
        self.phases = nn.Parameter(torch.empty(n).uniform_(0, 2 * math.pi, generator=generator))
        self.start = nn.Parameter(torch.empty(2 * n).uniform_(-0.01, 0.01, generator=generator))

    def unitary(self) -> Tensor:
        return unitary_cayley(self.skew_entries, self.phases)

    def parameter_groups(self) -> list[ParameterGroup]:
        everything, matrix = super().parameter_groups()
        others = [parameter for parameter in everything.parameters if parameter is not self.phases]
        phases = ParameterGroup([self.phases], self.phase_optimizer, self.phase_learning_rate)
        return [replace(everything, parameters=others), matrix, phases]
