"""KRU: a recurrent matrix as a Kronecker product of small complex factors, which a penalty pushes towards unitary.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = W_1 (x) W_2 (x) ... (x) W_F,   y = V [Re h; Im h] + c
    loss + lambda sum_f ||W_f* W_f - I||^2

n complex units; W_f has size P_f, and the product of all P_f is n. W is unitary if every factor is. h_0 = 0. C. Jose,
M. Cisse, F. Fleuret, "Kronecker Recurrent Units", ICML 2018. The paper does not state the activation, the initial
values, the optimiser or lambda. Here b starts at 0, the factors as Haar-random unitary matrices, and U and V
Glorot-uniform. The published parameter counts do not include b. `bias=false` removes it, and the recurrence is then
nearly linear.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache, reduce
from typing import Any

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.complex_form import as_complex, as_real, interleaved
from orthobench.matrices.initial import as_parameter
from orthobench.model import Count, Learns, ModelSettings, Signature
from orthobench.recurrence import SparseLayers

from ._complex import ComplexRNN
from ._plain import is_worth_applying

JOINED_UP_TO = 4
"""Neighbouring factors are multiplied out up to this size. With factors of 2, a training step then takes a tenth less
time than with 8, and about half of the time with 16."""


class KRUSettings(ModelSettings):
    hidden_size: Count = Field(512, description="number of complex hidden units n")
    factor_sizes: str = Field(
        "2",
        description="sizes of the Kronecker factors: P_1x...xP_F, such as 16x32, or one size of which n is a power",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    penalty_weight: float = Field(
        1e-2, ge=0, description="lambda, the weight of the penalty that keeps the factors unitary"
    )
    bias: bool = Field(True, description="train the modReLU's bias b, which starts at 0; false: b = 0")

    @model_validator(mode="before")
    @classmethod
    def _expand_factor_size(cls, values: dict[str, Any]) -> dict[str, Any]:
        size, n = cls.whole(values, "factor_sizes"), cls.whole(values, "hidden_size")
        if size < 2 or n < 2:
            return values
        count = round(math.log(n, size))
        return values | {"factor_sizes": "x".join([str(size)] * (count if size**count == n else 1))}

    @model_validator(mode="after")
    def _fit(self) -> KRUSettings:
        sizes = self.sizes()
        if min(sizes) < 2 or math.prod(sizes) != self.hidden_size:
            raise ValueError(
                f"factor_sizes={self.factor_sizes} should be sizes of at least 2 whose product is hidden_size "
                f"({self.hidden_size}), such as 16x32 for 512, or one size of which hidden_size is a power"
            )
        return self

    def sizes(self) -> list[int]:
        """Return P_1, ..., P_F, with 0 for text that is not a number."""
        return [int(size) if size.isdecimal() else 0 for size in self.factor_sizes.split("x")]


class KRU(ComplexRNN):
    version = 1
    title = "KRU"
    paper = "Jose, Cisse, Fleuret. Kronecker Recurrent Units. ICML 2018"
    cites = "jose2018"
    look = "dot circle"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"factor_sizes": "4x4x4", "learning_rate": 0.01})
    Settings = KRUSettings
    matrix_parameters = ("factors",)

    def __init__(self, settings: KRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.penalty_weight = settings.penalty_weight
        self.bias = nn.Parameter(torch.zeros(settings.hidden_size), requires_grad=settings.bias)
        self.start = None
        self.factors = nn.ParameterList(as_parameter(as_real(_haar(size, generator))) for size in settings.sizes())
        self.groups = _groups(settings.sizes())
        self.layers = kronecker_layers(tuple(math.prod(settings.sizes()[group]) for group in self.groups))
        self.forms_weight = not is_worth_applying(self.layers)

    def complex_factors(self) -> list[Tensor]:
        """Return W_1, ..., W_F, complex `[P_f, P_f]`."""
        return [as_complex(factor) for factor in self.factors]

    def unitary(self) -> Tensor:
        return reduce(torch.kron, self.complex_factors())

    def layer_weight(self) -> Tensor:
        n, factors = self.features // 2, self.complex_factors()
        joined = [reduce(torch.kron, factors[group]) for group in self.groups]
        return interleaved(torch.cat([factor.T.repeat(1, n // len(factor)) for factor in joined]))

    def penalty(self) -> Tensor:
        gaps = [factor.mH @ factor - torch.eye(len(factor), device=factor.device) for factor in self.complex_factors()]
        return self.penalty_weight * torch.stack([as_real(gap).square().sum() for gap in gaps]).sum()


def _groups(sizes: Sequence[int]) -> list[slice]:
    """Return the neighbouring factors that are multiplied out, because the size of their product stays small."""
    groups, first = [], 0
    for end in range(1, len(sizes) + 1):
        if end == len(sizes) or math.prod(sizes[first : end + 1]) > JOINED_UP_TO:
            groups.append(slice(first, end))
            first = end
    return groups


@cache
def kronecker_layers(sizes: tuple[int, ...]) -> SparseLayers:
    """Return the layers of factors of these sizes.

    Each maps the first axis of h `[P_1, ..., P_F]` and moves it last.
    """
    units = torch.arange(math.prod(sizes), device="cpu")
    return SparseLayers(tuple(units.view(size, -1).repeat_interleave(size, 1) for size in sizes), is_complex=True)


def _haar(size: int, generator: torch.Generator) -> Tensor:
    """Return the unitary polar factor of a complex Gaussian matrix, `[size, size]`."""
    left, _, right = torch.linalg.svd(torch.randn(size, size, generator=generator, dtype=torch.complex128))
    polar: Tensor = left @ right
    return polar
