"""ENRNN: a long-term state with an orthogonal matrix and a short-term state with an eigenvalue-normalised one.

    h = [h_L; h_S],   W = [[W_L, W_C], [0, W_S]],   h_t = modReLU(W h_{t-1} + U x_t; b)

W_L is scoRNN's scaled Cayley transform; W_S = T / (rho(T) + eps), rho the spectral radius; W_C (optional) lets the
short-term state feed the long-term one, never the reverse. K. Helfrich, Q. Ye, "Eigenvalue Normalized Recurrent Neural
Networks for Short Term Memory", AAAI 2020. Training begins with W_S = T; once rho(T) has exceeded 1 for the first time,
W_S is always normalised. As in the program eps is 0, so the radius is then exactly 1, not below (D-08). On Penn
Treebank the paper uses ReLU instead of modReLU, and W_C starts with orthonormal rows or columns.
"""

from __future__ import annotations

from typing import Any, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from orthobench.matrices.initial import as_parameter, half_circle_angles
from orthobench.matrices.skew import block_rotation_entries, minus_ones_last, scaled_cayley
from orthobench.matrices.spectral_radius import spectral_radius
from orthobench.model import Count, Learns, Positive, Signature
from orthobench.recurrence import MODRELU, RELU
from orthobench.recurrence.plain_tensors import is_on_gpu, is_plain

from ._plain import MatrixSettings, PlainRNN

_ACTIVATIONS = {"modrelu": MODRELU, "relu": RELU}


class ENRNNSettings(MatrixSettings):
    hidden_size: Count = Field(160, description="number of hidden units of both states, n = q + s")
    learning_rate: Positive = 1e-4
    short_size: int | float = Field(
        0.4,
        description="s, units of the short-term state; a value with a decimal point, such as 0.4, is a share of n",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    negative_ones: int | float = Field(
        0.3,
        description="entries -1 on the diagonal of D for W_L; "
        "a value with a decimal point, such as 0.3, is a share of q",
        json_schema_extra={"tied_to": "hidden_size"},
    )
    coupling: bool = Field(True, description="use W_C, the matrix from the short-term to the long-term state")
    epsilon: float = Field(0.0, ge=0, description="eps in the denominator of the normalisation")
    activation: Literal["modrelu", "relu"] = Field(
        "modrelu", description="activation of both states", json_schema_extra={"neutral": "modrelu"}
    )
    coupling_start: Literal["glorot", "orthogonal"] = Field(
        "glorot",
        description="start of W_C; glorot: Glorot-uniform; orthogonal: a block of an orthogonal matrix",
        json_schema_extra={"neutral": "glorot"},
    )

    @model_validator(mode="before")
    @classmethod
    def _resolve_shares(cls, values: dict[str, Any]) -> dict[str, Any]:
        n = cls.whole(values, "hidden_size")
        values = cls.fill_share(values, "short_size", n)
        return cls.fill_share(values, "negative_ones", n - cls.whole(values, "short_size"))

    @model_validator(mode="after")
    def _fit(self) -> ENRNNSettings:
        for name, most, of in (
            ("short_size", self.hidden_size, "hidden_size"),
            ("negative_ones", self.hidden_size - int(self.short_size), "the long-term size"),
        ):
            value = getattr(self, name)
            if not isinstance(value, int) or not 0 <= value <= most:
                raise ValueError(f"{name}={value} should be a whole number from 0 to {of} ({most}), or a share")
        return self


class ENRNN(PlainRNN):
    version = 1
    step_matrices = ("W_L", "W_S")
    bounded_parts = {"short": "W_S"}  # the long-term state also reads the short-term one
    title = "ENRNN"
    paper = "Helfrich, Ye. Eigenvalue Normalized RNNs for Short Term Memory. AAAI 2020"
    cites = "helfrich2020, helfrich2018"
    look = "solid cross"
    family = "orthogonal"
    learns = Learns("copying", 0.2, gate={"recurrent_learning_rate": 2e-3})
    Settings = ENRNNSettings
    matrix_parameters = ("skew_entries",)

    signs: Tensor
    normalised: Tensor

    def __init__(self, settings: ENRNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        s = int(settings.short_size)
        q = settings.hidden_size - s
        self.epsilon = settings.epsilon
        self.activation = _ACTIVATIONS[settings.activation]
        self.skew_entries = as_parameter(block_rotation_entries(_half_circle(q, generator), q))
        self.register_buffer("signs", minus_ones_last(q, int(settings.negative_ones)))
        # Each pair of units rotates by an angle in (0, pi / 2), scaled by a modulus in (-1, 1); an odd unit comes last
        # (D-09).
        rotation = scaled_cayley(block_rotation_entries(_half_circle(s, generator), s), torch.ones(s))
        moduli = torch.empty((s + 1) // 2, dtype=torch.float64).uniform_(-1, 1, generator=generator)
        self.short_weight = as_parameter(rotation * moduli.repeat_interleave(2)[:s])
        self.coupling_weight = None
        if settings.coupling:
            self.coupling_weight = nn.Parameter(torch.empty(q, s))
            start = {"glorot": nn.init.xavier_uniform_, "orthogonal": nn.init.orthogonal_}[settings.coupling_start]
            start(self.coupling_weight, generator=generator)
        self.register_buffer("normalised", torch.zeros((), dtype=torch.bool))

    def radius(self) -> Tensor:
        """Return rho(T), a scalar."""
        if not self.short_weight.numel():
            return self.short_weight.new_zeros(())
        return spectral_radius(self.short_weight, is_on_gpu(self.short_weight))

    def blocks(self) -> tuple[Tensor, Tensor]:
        """Return W_L `[q, q]` and W_S `[s, s]`."""
        long, flag = scaled_cayley(self.skew_entries, self.signs), self.normalised
        if is_on_gpu(flag):  # the host need not know whether T is normalised
            return long, self.short_weight / torch.where(flag, self.radius() + self.epsilon, 1.0)
        # A mode of fake tensors reads no tensor, but lets numpy do so. On the device meta there are only shapes.
        # A private function, because torch has no public one that tells of a mode.
        in_mode = torch._C._len_torch_dispatch_stack() > 0 and flag.is_cpu and is_plain(flag)
        is_normalised = flag.numpy() if in_mode else not flag.is_meta and flag
        return long, self.short_weight / (self.radius() + self.epsilon) if is_normalised else self.short_weight

    def weight(self) -> Tensor:
        long, short = self.blocks()
        corner = long.new_zeros(len(long), len(short)) if self.coupling_weight is None else self.coupling_weight
        lower = torch.cat((short.new_zeros(len(short), len(long)), short), dim=1)
        return torch.cat((torch.cat((long, corner), dim=1), lower))

    def state_parts(self) -> dict[str, slice]:
        return {"long": slice(0, len(self.signs)), "short": slice(len(self.signs), self.features)}

    def after_step(self) -> None:
        if is_on_gpu(self.normalised):
            weight = self.short_weight.detach()  # without a derivative, which an autograd function would compute
            self.normalised |= spectral_radius(weight, True) > 1 if weight.numel() else False
        elif not self.normalised and self.radius() > 1:
            self.normalised.fill_(True)

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return dict(zip(("W_L", "W_S"), self.blocks(), strict=True))


def _half_circle(n: int, generator: torch.Generator) -> Tensor:
    return torch.tan(half_circle_angles(n, generator) / 2)
