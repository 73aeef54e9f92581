"""uRNN of full capacity: a dense unitary recurrent matrix, kept unitary by multiplicative Cayley steps.

    h_t = modReLU(W h_{t-1} + U x_t; b),   y = V [Re h; Im h] + c
    W <- (I + lr/2 B)^{-1} (I - lr/2 B) W,   B = G W* - W G*,   G = dL/dRe W + i dL/dIm W

n complex units; h_0 is trained, and W starts as a random matrix of restricted capacity. S. Wisdom, T. Powers, J.
Hershey, J. Le Roux, L. Atlas, "Full-Capacity Unitary Recurrent Neural Networks", NIPS 2016. Nothing projects W back
onto the unitary matrices, so rounding errors accumulate (scoRNN paper, figure 4). The MNIST program divides G by the
root of its running mean square first: recurrent_optimizer=cayley_rmsprop_keras1 with a rate of 1e-6.

The released program stores W = A + iB as [[A^T, B^T], [-B^T, A^T]], for rows [Re h, Im h]. It takes G only from the
upper blocks, that is, through Re h (D-04). The default here is the gradient from both occurrences of A and B. The
papers' experiments follow the program, by gradient=top_row. B is defined as in this paper; the first version of the
scoRNN paper has another definition (D-03).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from orthobench.matrices.complex_form import as_complex, as_real
from orthobench.matrices.initial import as_parameter
from orthobench.matrices.unitary_chain import draw_unitary_chain, unitary_chain_matrix
from orthobench.model import Count, Learns, Positive, Signature

from ._plain import MatrixSettings
from .urnn import URNNBase, URNNSettings


class FullURNNSettings(URNNSettings, MatrixSettings):
    hidden_size: Count = Field(128, description="number of complex hidden units n")
    recurrent_optimizer: Literal["cayley", "cayley_rmsprop_keras1"] = Field(
        "cayley",
        description="optimiser of W; cayley: a step along the gradient; "
        "cayley_rmsprop_keras1: the gradient divided by its root mean square",
    )
    recurrent_learning_rate: Positive = 1e-3
    gradient: Literal["both", "top_row"] = Field(
        "both",
        description="gradient of W; both: through Re h and Im h; "
        "top_row: through Re h alone, as in the released program",
    )


class FullURNN(URNNBase):
    version = 1
    title = "Full uRNN"
    paper = "Wisdom, Powers, Hershey, Le Roux, Atlas. Full-Capacity Unitary Recurrent Neural Networks. NIPS 2016"
    cites = "wisdom2016"
    look = "solid diamond"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"hidden_size": 32, "recurrent_learning_rate": 1e-3, "gradient": "both"})
    Settings = FullURNNSettings
    matrix_parameters = ("recurrent_weight",)

    def __init__(self, settings: FullURNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.gradient = settings.gradient
        phases, reflections, permutation = draw_unitary_chain(settings.hidden_size, generator)
        start = unitary_chain_matrix(phases.double(), reflections.double(), permutation)
        self.recurrent_weight = as_parameter(as_real(start).contiguous())

    def unitary(self) -> Tensor:
        return as_complex(self.recurrent_weight)

    def weight(self) -> Tensor:
        whole = super().weight()
        if self.gradient == "both":
            return whole
        reads_real_part = torch.arange(len(whole), device=whole.device) % 2 == 0
        return torch.where(reads_real_part, whole, whole.detach())

    def retract(self) -> None:
        left, _, right = torch.linalg.svd(self.unitary())
        self.recurrent_weight.copy_(as_real(left @ right))

    def parameter_count(self) -> int:
        return super().parameter_count() - self.hidden_size**2  # unitary matrices have n^2 dimensions, not 2 n^2
