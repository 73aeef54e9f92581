"""The plain recurrence of n complex units, h_t = modReLU(W h_{t-1} + U x_t; b), as in the uRNN papers' programs.

States are 2n real features (`matrices.complex_form`). Inputs and outputs are real, U is `[2n, m]`, and the output map
reads real and imaginary parts. modReLU is smoothed as in the programs and has one b per unit.
"""

from __future__ import annotations

from abc import abstractmethod

import torch
from torch import Tensor, nn

from orthobench.matrices.complex_form import real_form
from orthobench.matrices.initial import glorot_vector_
from orthobench.model import ModelSettings, Signature
from orthobench.recurrence import Activation, Kind

from ._plain import PlainRNN


class ComplexRNN(PlainRNN):
    """A model of complex units whose unitary matrix is computed by `unitary`.

    U and V start Glorot-uniform and b as U(-0.01, 0.01); h_0 is trained and starts as a Glorot-uniform vector. A
    subclass overwrites the parameters that its program initialises differently.
    """

    activation = Activation(Kind.COMPLEX_MODRELU_SMOOTH, epsilon=1e-5)
    bounded_parts = {}  # the derivative of a modReLU that divides by |z| + epsilon exceeds 1
    cost = "complex units are two features each: four times the products"

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        nn.init.xavier_uniform_(self.input_weight, generator=generator)
        self.bias = nn.Parameter(torch.empty(settings.hidden_size).uniform_(-0.01, 0.01, generator=generator))
        self.start = nn.Parameter(glorot_vector_(torch.empty(2 * settings.hidden_size), generator))

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return 2 * settings.hidden_size

    @abstractmethod
    def unitary(self) -> Tensor:
        """Return W, complex `[n, n]`, as a differentiable function of its parameters."""

    def weight(self) -> Tensor:
        return real_form(self.unitary())

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": self.unitary()}
