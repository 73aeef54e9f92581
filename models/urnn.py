"""uRNN of restricted capacity: a unitary recurrent matrix as a chain of simple ones, with O(n) parameters.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = D_3 R_2 F^-1 D_2 P R_1 F D_1,   y = V [Re h; Im h] + c

n complex units. D_k is diagonal with entries e^{i theta}, R_k is a reflection, F the unitary Fourier transform and P a
fixed random permutation; h_0 is trained. M. Arjovsky, A. Shah, Y. Bengio, "Unitary Evolution Recurrent Neural
Networks", ICML 2016. Computing W once and applying its factors in every step give the same result; only the time
differs.
"""

from __future__ import annotations

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.matrices.complex_form import complex_states, interleaved
from orthobench.matrices.unitary_chain import draw_unitary_chain, unitary_chain, unitary_chain_matrix
from orthobench.model import Count, Learns, ModelSettings, OptimizerName, Signature
from orthobench.recurrence import Multiply

from ._complex import ComplexRNN

FORMED_UP_TO = 512
"""Up to this number of units W is computed once per iteration; with more, applying its factors is faster."""


class URNNSettings(ModelSettings):
    hidden_size: Count = Field(512, description="number of complex hidden units n")
    optimizer: OptimizerName = "rmsprop_theano"
    bias_mean: float = Field(0.0, description="the modReLU's bias b is drawn from U(mean - spread, mean + spread)")
    bias_spread: float = Field(
        0.01, ge=0, description="spread of the modReLU's initial bias b; 0 in the program for MNIST"
    )


class URNNBase(ComplexRNN):
    """The common base of the uRNNs of restricted and full capacity, which initialises b."""

    def __init__(self, settings: URNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        mean, spread = settings.bias_mean, settings.bias_spread
        nn.init.uniform_(self.bias, mean - spread, mean + spread, generator=generator)


class URNN(URNNBase):
    version = 1
    title = "Restricted uRNN"
    paper = "Arjovsky, Shah, Bengio. Unitary Evolution Recurrent Neural Networks. ICML 2016"
    cites = "arjovsky2016"
    look = "solid triangle-up"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"hidden_size": 32})
    orthogonal = True
    Settings = URNNSettings
    matrix_parameters = ("phases", "reflections")

    permutation: Tensor

    def __init__(self, settings: URNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.forms_weight = settings.hidden_size <= FORMED_UP_TO
        phases, reflections, permutation = draw_unitary_chain(settings.hidden_size, generator)
        self.phases, self.reflections = nn.Parameter(phases), nn.Parameter(reflections)
        # A buffer, because the file of the weights must hold it: it was drawn with them.
        self.register_buffer("permutation", permutation)

    def unitary(self) -> Tensor:
        return unitary_chain_matrix(self.phases, self.reflections, self.permutation)

    def multiplier(self) -> Multiply:
        apply = unitary_chain(self.phases, self.reflections, self.permutation)
        return lambda rows: interleaved(apply(complex_states(rows)))
