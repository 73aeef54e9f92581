"""oRNN: an orthogonal recurrent matrix as a product of Householder reflections.

    h_t = f(W h_{t-1} + U x_t + b),   W = H(u_1) ... H(u_k),   H(u) = I - 2 u u^T / u^T u

u_j is zero in its first j - 1 entries; f is the leaky ReLU of slope 0.1; h_0 is trained. Z. Mhammedi, A. Hellicar, A.
Rahman, J. Bailey, "Efficient Orthogonal Parametrisation of Recurrent Neural Networks Using Householder Reflections",
ICML 2017. As in the program, the vectors are scaled back to unit length after every step. This does not change W, but
it does change the size of their gradients. With k = n the last reflection has a single entry and could only flip one
sign, so the sign of that entry is used instead.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.householder import falling_size, falling_vectors, householder_product, unit_entries
from orthobench.model import Count, Learns, ModelSettings, OptimizerName, Positive, Signature
from orthobench.recurrence import LEAKY_RELU

from ._plain import PlainRNN


class ORNNSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    learning_rate: Positive = 1e-3
    reflections: Count = Field(
        16, description="k, the number of Householder reflections", json_schema_extra={"tied_to": "hidden_size"}
    )

    @model_validator(mode="after")
    def _fits(self) -> ORNNSettings:
        if self.reflections > self.hidden_size and self.reflections != type(self).model_fields["reflections"].default:
            raise ValueError(
                f"reflections={self.reflections} is more than hidden_size ({self.hidden_size}): "
                "a product of n reflections is every orthogonal matrix already"
            )
        return self


class ORNN(PlainRNN):
    version = 1
    title = "oRNN"
    paper = "Mhammedi, Hellicar, Rahman, Bailey. Efficient Orthogonal Parametrisation of RNNs. ICML 2017"
    cites = "mhammedi2017"
    look = "solid star"
    family = "orthogonal"
    learns = Learns("adding", 0.2, {"learning_rate": 0.01}, gate={"learning_rate": 0.02})
    orthogonal = True
    Settings = ORNNSettings
    matrix_parameters = ("entries",)
    activation = LEAKY_RELU

    def __init__(self, settings: ORNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.reflections = min(settings.reflections, n)
        self.entries = nn.Parameter(0.01 * torch.randn(falling_size(n, self.reflections), generator=generator))
        nn.init.xavier_uniform_(self.input_weight, generator=generator)
        bound = math.sqrt(3 / (2 * n))
        self.start = nn.Parameter(torch.empty(n).uniform_(-bound, bound, generator=generator))
        with torch.no_grad():
            self.after_step()

    def vectors(self) -> Tensor:
        """u_1 ... u_k as columns, `[n, k]`."""
        return falling_vectors(self.entries, self.hidden_size, self.reflections)

    def weight(self) -> Tensor:
        vectors = self.vectors()
        if self.reflections < self.hidden_size:
            return householder_product(vectors)
        signs = torch.ones_like(vectors[:, 0])
        signs[-1] = vectors[-1, -1].detach().sign()
        return householder_product(vectors[:, :-1]) * signs

    def after_step(self) -> None:
        self.entries.copy_(unit_entries(self.entries, self.hidden_size, self.reflections))
