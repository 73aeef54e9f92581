"""scoRNN: a real orthogonal recurrent matrix by the scaled Cayley transform.

    h_t = modReLU(W h_{t-1} + U x_t; b),   W = (I + A)^{-1} (I - A) D,   y = V h + c,   h_0 = 0

A is skew-symmetric and is trained by gradient descent (D-01); D = diag(+1, ..., -1, ...) is fixed. K. Helfrich, D.
Willmott, Q. Ye, "Orthogonal Recurrent Neural Networks with Scaled Cayley Transform", ICML 2018, sections 3 and 4. A may
be banded, which the paper mentions but does not use in its experiments.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor

from orthobench.matrices.initial import as_parameter, half_circle_angles
from orthobench.matrices.skew import band_entries, block_rotation_entries, from_band, minus_ones_last, scaled_cayley
from orthobench.model import Count, Learns, Signature
from orthobench.recurrence import MODRELU, RELU, TANH

from ._plain import MatrixSettings, PlainRNN

_ACTIVATIONS = {"modrelu": MODRELU, "relu": RELU, "tanh": TANH}


class ScoRNNSettings(MatrixSettings):
    hidden_size: Count = Field(170, description="number of hidden units n")
    negative_ones: int | float = Field(
        0.5,
        description="rho, entries -1 on the diagonal of D; a value with a decimal point, such as 0.5, is a share of n",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    activation: Literal["modrelu", "relu", "tanh"] = Field("modrelu", description="activation of the hidden state")
    initialization: Literal["half_circle", "zeros"] = Field(
        "half_circle", description="start of A; half_circle: eigenvalue angles of W in U(0, pi/2)"
    )
    bandwidth: Count | None = Field(
        None,
        description="l, the bandwidth of A: entries further than l from the diagonal stay 0; "
        "none: all entries are trained",
        json_schema_extra={"tied_to": "hidden_size", "neutral": None},
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve_shares(cls, values: dict[str, Any]) -> dict[str, Any]:
        return cls.fill_share(values, "negative_ones", cls.whole(values, "hidden_size"))

    @model_validator(mode="after")
    def _fits(self) -> ScoRNNSettings:
        if not isinstance(self.negative_ones, int) or not 0 <= self.negative_ones <= self.hidden_size:
            raise ValueError(
                f"negative_ones={self.negative_ones} should be a whole number from 0 to hidden_size "
                f"({self.hidden_size}), or a share such as 0.5"
            )
        if self.bandwidth is not None and self.bandwidth >= self.hidden_size:
            raise ValueError(
                f"bandwidth={self.bandwidth} should be less than hidden_size ({self.hidden_size}); "
                "bandwidth=none trains every entry of A"
            )
        return self


class ScoRNN(PlainRNN):
    version = 1
    title = "scoRNN"
    paper = "Helfrich, Willmott, Ye. Orthogonal Recurrent Neural Networks with Scaled Cayley Transform. ICML 2018"
    cites = "helfrich2018"
    look = "solid circle"
    family = "orthogonal"
    learns = Learns("copying", 0.2)
    orthogonal = True
    Settings = ScoRNNSettings
    matrix_parameters = ("skew_entries",)

    signs: Tensor

    def __init__(self, settings: ScoRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        n = settings.hidden_size
        self.activation = _ACTIVATIONS[settings.activation]
        # s = tan(t / 2) = sqrt((1 - cos t) / (1 + cos t)): Cayley maps [[0, s], [-s, 0]] to a rotation by t.
        s = torch.tan(half_circle_angles(n, generator) / 2)
        if settings.initialization == "zeros":
            s = torch.zeros_like(s)
        upper = block_rotation_entries(s, n)
        self.bandwidth = settings.bandwidth
        self.skew_entries = as_parameter(upper if self.bandwidth is None else band_entries(upper, n, self.bandwidth))
        self.register_buffer("signs", minus_ones_last(n, int(settings.negative_ones)))

    def weight(self) -> Tensor:
        if self.bandwidth is None:
            return scaled_cayley(self.skew_entries, self.signs)
        return scaled_cayley(from_band(self.skew_entries, self.hidden_size, self.bandwidth), self.signs)
