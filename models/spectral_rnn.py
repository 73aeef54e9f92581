"""Spectral RNN: a recurrent matrix by its singular value decomposition, with singular values in a band around one.

    h_t = max(W h_{t-1} + U_x x_t + b, 0),   W = U diag(sigma) V^T,   sigma_i = 1 + 2 r (sigmoid(s_i) - 1/2)
    U = H(u_1) ... H(u_k),   V = H(v_1) ... H(v_k),   H(u) = I - 2 u u^T / u^T u

u_j and v_j are zero in their first j - 1 entries; r is the margin. J. Zhang, Q. Lei, I. Dhillon, "Stabilizing Gradients
for Deep Neural Networks via Efficient SVD Parameterization", ICML 2018. As in the program, the vectors start
Glorot-uniform, and every step scales them to unit length, which only changes the size of their gradients. At the start
sigma_i = 1; the output's matrix and bias are drawn from N(0, 0.1^2), truncated at 0.2. The learning rate decreases by a
constant factor per epoch (the training setting `learning_rate_decay`). torch's `parametrizations.orthogonal` always
uses n reflections for a square matrix, so `matrices.householder` computes the product of k.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.householder import falling_size, falling_vectors, householder_product, unit_entries
from orthobench.model import Count, Learns, ModelSettings, OptimizerName, OutputBias, Positive, Signature
from orthobench.recurrence import RELU

from ._plain import PlainRNN


class SpectralRNNSettings(ModelSettings):
    hidden_size: Count = Field(60, description="number of hidden units n")
    optimizer: OptimizerName = "adam_tf1"
    learning_rate: Positive = 1e-3
    output_bias: OutputBias = "truncated_normal"
    reflections: Count = Field(
        16,
        description="k, Householder reflections in each orthogonal factor",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    margin: float = Field(0.01, gt=0, le=1, description="r; singular values of W stay between 1 - r and 1 + r")

    @model_validator(mode="after")
    def _fits(self) -> SpectralRNNSettings:
        if self.reflections > self.hidden_size and self.reflections != type(self).model_fields["reflections"].default:
            raise ValueError(
                f"reflections={self.reflections} is more than hidden_size ({self.hidden_size}): "
                "a product of n reflections is every orthogonal matrix already"
            )
        return self


class SpectralRNN(PlainRNN):
    version = 1
    title = "Spectral RNN"
    paper = "Zhang, Lei, Dhillon. Stabilizing Gradients for DNNs via Efficient SVD Parameterization. ICML 2018"
    cites = "zhang2018"
    look = "dash triangle-up"
    family = "orthogonal"
    learns = Learns("adding", 0.2)
    Settings = SpectralRNNSettings
    matrix_parameters = ("left_entries", "right_entries")
    activation = RELU

    def __init__(self, settings: SpectralRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.margin = settings.margin
        self.reflections = k = min(settings.reflections, n)
        bound = math.sqrt(6 / (k + n))
        entries = torch.empty(2, falling_size(n, k)).uniform_(-bound, bound, generator=generator)
        self.left_entries, self.right_entries = (nn.Parameter(each.clone()) for each in entries)
        self.spectrum = nn.Parameter(torch.zeros(n))
        nn.init.xavier_uniform_(self.input_weight, generator=generator)
        nn.init.trunc_normal_(self.output_weight, std=0.1, a=-0.2, b=0.2, generator=generator)

    def factors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Return U `[n, n]`, sigma `[n]` and V `[n, n]`."""
        left, right = (
            householder_product(falling_vectors(entries, self.hidden_size, self.reflections))
            for entries in (self.left_entries, self.right_entries)
        )
        return left, 1 + 2 * self.margin * (self.spectrum.sigmoid() - 0.5), right

    def weight(self) -> Tensor:
        left, sigma, right = self.factors()
        return (left * sigma) @ right.T

    def after_step(self) -> None:
        for entries in (self.left_entries, self.right_entries):
            entries.copy_(unit_entries(entries, self.hidden_size, self.reflections))
