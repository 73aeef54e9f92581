r"""nnRNN: a recurrent matrix parametrised by its real Schur form, which starts orthogonal but need not remain so.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = P (Theta + N) P^T,   P = exp(A),   A^T = -A

Theta is block diagonal with blocks gamma_i [[cos theta_i, -sin theta_i], [sin theta_i, cos theta_i]]; N is strictly
upper triangular, and zero at the start. G. Kerg, K. Goyette, M. Puelma Touzel, G. Gidel, E. Vorontsov, Y. Bengio, G.
Lajoie, "Non-normal Recurrent Neural Network (nnRNN): Learning Long Time Dependencies While Improving Expressivity with
Transient Dynamics", NeurIPS 2019. The loss includes delta sum_i (gamma_i - 1)^2; N has a separate weight decay. With
"block_strict" gamma_i is the modulus of an eigenvalue. With "strict", as in the program, N includes the entry above the
diagonal inside each block of Theta, so gamma_i is a modulus only while this entry is zero. The defaults are the values
for the copying problem in the paper's supplement. P is computed by `matrices.exponential`, because the derivative of
torch's `matrix_exp` costs the exponential of a matrix twice as large.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, field_validator
from torch import Tensor, nn

from orthobench.matrices.exponential import exponential
from orthobench.matrices.initial import as_parameter, exponential_angles
from orthobench.matrices.skew import above_blocks, above_diagonal, block_rotation_entries
from orthobench.model import Learns, OptimizerName, OutputBias, ParameterGroup, Positive, Signature
from orthobench.recurrence import MODRELU

from ._plain import MatrixSettings, PlainRNN


class NNRNNSettings(MatrixSettings):
    optimizer: OptimizerName = "rmsprop_torch"
    learning_rate: Positive = 5e-4
    recurrent_optimizer: OptimizerName = "rmsprop_torch"
    recurrent_learning_rate: Positive = Field(1e-6, description="learning rate of A")
    output_bias: OutputBias = "linear"
    initialization: Literal["full_circle", "half_circle"] = Field(
        "full_circle",
        description="start of the angles of A; full_circle: U(-pi, pi); half_circle: -tan(t / 2), t from U(0, pi/2)",
    )
    triangle: Literal["strict", "block_strict"] = Field(
        "strict",
        description="entries of N; strict: above the diagonal; block_strict: above the 2 x 2 blocks of the diagonal",
    )
    modulus_penalty: float = Field(
        1e-4, ge=0, description="delta, the weight of the penalty (gamma - 1)^2 on the moduli gamma"
    )
    triangle_decay: float = Field(1e-6, ge=0, description="weight decay of N")
    map_start: Literal["glorot_normal", "language"] = Field(
        "glorot_normal",
        description="start of U and V; language: Kaiming-normal for U and U(-0.1, 0.1) for V, as in the text program",
    )

    @field_validator("hidden_size")
    @classmethod
    def _check_even(cls, n: int) -> int:
        if n % 2:
            raise ValueError(f"should be even, as eigenvalues come in pairs: {n + 1}, for example")
        return n


class NNRNN(PlainRNN):
    version = 1
    title = "nnRNN"
    paper = "Kerg et al. Non-normal Recurrent Neural Network (nnRNN). NeurIPS 2019"
    cites = "kerg2019"
    look = "dot diamond"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"recurrent_optimizer": "adam_tf1", "recurrent_learning_rate": 2e-3})
    Settings = NNRNNSettings
    activation = MODRELU
    matrix_parameters = ("skew_entries",)

    def __init__(self, settings: NNRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.modulus_penalty, self.triangle_decay = settings.modulus_penalty, settings.triangle_decay
        angles = exponential_angles(settings.initialization, n, generator)
        self.skew_entries = as_parameter(block_rotation_entries(angles, n))
        self.rotations = nn.Parameter(torch.empty(n // 2).uniform_(0, 6.28, generator=generator))
        self.moduli = nn.Parameter(torch.ones(n // 2))
        self.positions = above_diagonal if settings.triangle == "strict" else above_blocks
        self.triangle_entries = nn.Parameter(torch.zeros(len(self.positions(n, device=torch.device("cpu")))))
        nn.init.uniform_(self.bias, -0.01, 0.01, generator=generator)
        if settings.map_start == "language":
            nn.init.kaiming_normal_(self.input_weight, nonlinearity="relu", generator=generator)
            nn.init.uniform_(self.output_weight, -0.1, 0.1, generator=generator)
        else:
            for weight in (self.input_weight, self.output_weight):
                nn.init.xavier_normal_(weight, generator=generator)

    def schur_form(self) -> Tensor:
        """Return Theta + N, `[n, n]`."""
        n = self.hidden_size
        positions = self.positions(n, device=self.triangle_entries.device)
        triangle = self.triangle_entries.new_zeros(n * n).scatter_(0, positions, self.triangle_entries).view(n, n)
        cosines = (self.moduli * self.rotations.cos()).repeat_interleave(2)
        sines = self.moduli * self.rotations.sin()
        sines = torch.stack((sines, torch.zeros_like(sines)), dim=1).flatten()[:-1]
        return triangle + torch.diag(cosines) + torch.diag(sines, -1) - torch.diag(sines, 1)

    def weight(self) -> Tensor:
        p = exponential(self.skew_entries, self.hidden_size)
        return p @ self.schur_form() @ p.T

    def penalty(self) -> Tensor:
        return self.modulus_penalty * (self.moduli - 1).square().sum()

    def parameter_groups(self) -> list[ParameterGroup]:
        everything, skew = super().parameter_groups()
        others = [parameter for parameter in everything.parameters if parameter is not self.triangle_entries]
        return [
            ParameterGroup(others, self.optimizer, self.learning_rate),
            ParameterGroup([self.triangle_entries], self.optimizer, self.learning_rate, self.triangle_decay),
            skew,
        ]
