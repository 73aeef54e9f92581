"""Soft-orthogonal RNN: a recurrent matrix factorised as U diag(s) V^T, with singular values in a band around one.

    h_t = tanh(W h_{t-1} + U_x x_t + b),   W = U diag(s) V^T,   s_i = 1 + 2 mu (sigmoid(p_i) - 1/2)

E. Vorontsov, C. Trabelsi, S. Kadoury, C. Pal, "On Orthogonality and Learning Recurrent Networks with Long Term
Dependencies", ICML 2017. The setting `margin` is mu. With mu = 0 W is orthogonal; without a margin s = max(p, 0). The
learning rate of p is divided by 2 mu, so that a step moves s equally far for any margin. U and V are orthogonal and are
updated by the multiplicative Cayley step M <- (I + eta/2 B)^{-1} (I - eta/2 B) M, B = G M^T - M G^T. This is the
paper's first version; the program uses G^T M - M^T G, which need not be a descent direction. The program also starts
every step from the first M (D-42). U and V are parameters themselves, so torch's `parametrizations.orthogonal`, which
computes them from other parameters, does not apply here.

The loss includes a penalty ||.||^2 on U_x, W and the output matrix, as in the program. Settings add ||W^T W - I||^2 or
sum_i (s_i - 1)^2. Because U and V are orthogonal, ||W||^2 = sum_i s_i^2 and ||W^T W - I||^2 = sum_i (s_i^2 - 1)^2.

W starts as a uniformly random orthogonal matrix, or Glorot-uniform; h_0 is trained, starting at zero. The copying runs
have no nonlinearity.
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.initial import as_parameter
from orthobench.model import Learns, OptimizerName, ParameterGroup, Positive, Signature
from orthobench.recurrence import IDENTITY, TANH

from ._plain import MatrixSettings, PlainRNN

_ACTIVATIONS = {"tanh": TANH, "identity": IDENTITY}


class SoftOrthogonalSettings(MatrixSettings):
    optimizer: OptimizerName = "rmsprop_lasagne"
    learning_rate: Positive = 1e-4
    recurrent_optimizer: Literal["cayley"] = Field(
        "cayley", description="optimiser of U and V, which keeps them orthogonal"
    )
    recurrent_learning_rate: float = Field(
        1e-6, ge=0, description="learning rate of U and V; with 0 they do not change, as in the released program"
    )
    spectrum_learning_rate: Positive = Field(1e-4, description="learning rate of p, divided by 2 mu before use")
    margin: float | None = Field(
        0.1, ge=0, le=1, description="mu; singular values of W stay between 1 - mu and 1 + mu; none: no bound"
    )
    activation: Literal["tanh", "identity"] = Field("tanh", description="activation of the hidden state")
    initialization: Literal["orthogonal", "glorot"] = Field(
        "orthogonal", description="start of W; orthogonal: W is orthogonal; glorot: Glorot-uniform, needs margin=none"
    )
    trained_start: bool = Field(True, description="train the initial state h_0; false: h_0 = 0")
    weight_decay: float = Field(
        1e-4, ge=0, description="weight of the penalty ||.||^2 on the input, recurrent and output matrices"
    )
    matrix_penalty: float = Field(0.0, ge=0, description="lambda, the weight of the penalty ||W^T W - I||^2")
    spectrum_penalty: float = Field(
        0.0, ge=0, description="lambda, the weight of the penalty sum (s - 1)^2 on the singular values s"
    )

    @model_validator(mode="after")
    def _check_initialization(self) -> SoftOrthogonalSettings:
        if self.initialization == "glorot" and self.margin is not None:
            raise ValueError(f"initialization=glorot has singular values outside margin={self.margin}: use margin=none")
        return self


class SoftOrthogonal(PlainRNN):
    version = 1
    title = "Soft-orthogonal RNN"
    paper = "Vorontsov, Trabelsi, Kadoury, Pal. On Orthogonality and Learning Recurrent Networks. ICML 2017"
    cites = "vorontsov2017"
    look = "dot star"
    family = "orthogonal"
    affine_if = {"activation": "identity", "block": None}
    learns = Learns(
        "copying",
        0.2,
        {"activation": "identity", "learning_rate": 1e-3, "recurrent_learning_rate": 1e-4},
        gate={"activation": "identity", "recurrent_learning_rate": 2e-3},
    )
    Settings = SoftOrthogonalSettings
    penalises_weights = True
    matrix_parameters = ("left", "right")

    def __init__(self, settings: SoftOrthogonalSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.activation = _ACTIVATIONS[settings.activation]
        self.margin = settings.margin
        self.spectrum_learning_rate = settings.spectrum_learning_rate
        self.weight_decay = settings.weight_decay
        self.matrix_penalty, self.spectrum_penalty = settings.matrix_penalty, settings.spectrum_penalty
        drawn = torch.empty(n, n, dtype=torch.float64)
        if settings.initialization == "glorot":
            nn.init.xavier_uniform_(drawn, generator=generator)
        else:
            drawn.normal_(generator=generator)
        left, values, right = torch.linalg.svd(drawn)
        self.left, self.right = as_parameter(left), as_parameter(right.mT)
        self.spectrum: nn.Parameter | None = None
        if self.margin is None:
            self.spectrum = as_parameter(values if settings.initialization == "glorot" else torch.ones(n))
        elif self.margin > 0:
            self.spectrum = nn.Parameter(torch.zeros(n))
        if settings.trained_start:
            self.start = nn.Parameter(torch.zeros(n))

    def singular_values(self) -> Tensor:
        """Return the singular values s `[n]`."""
        if self.spectrum is None:
            return self.left.new_ones(self.hidden_size)
        if self.margin is None:
            return self.spectrum.relu()
        return 1 + 2 * self.margin * (self.spectrum.sigmoid() - 0.5)

    def weight(self) -> Tensor:
        return (self.left * self.singular_values()) @ self.right.T

    def retract(self) -> None:
        for basis in (self.left, self.right):
            left, _, right = torch.linalg.svd(basis)
            basis.copy_(left @ right)

    def penalty(self) -> Tensor:
        s = self.singular_values()
        squares = self.input_weight.square().sum() + s.square().sum() + self.output_weight.square().sum()
        return (
            self.weight_decay * squares
            + self.matrix_penalty * (s.square() - 1).square().sum()
            + self.spectrum_penalty * (s - 1).square().sum()
        )

    def parameter_groups(self) -> list[ParameterGroup]:
        free, bases = super().parameter_groups()
        if self.spectrum is None:
            return [free, bases]
        others = [parameter for parameter in free.parameters if parameter is not self.spectrum]
        rate = self.spectrum_learning_rate / (2 * self.margin if self.margin else 1)
        return [
            ParameterGroup(others, self.optimizer, self.learning_rate),
            ParameterGroup([self.spectrum], self.optimizer, rate),
            bases,
        ]

    def parameter_count(self) -> int:
        """Count W as its manifold's dimension, n^2 or n (n - 1) / 2 if orthogonal, and omit h_0, as in the paper."""
        n = self.hidden_size
        others = (self.input_weight, self.bias, self.output_weight, self.output_bias)
        return (n * (n - 1) // 2 if self.spectrum is None else n * n) + sum(each.numel() for each in others)
