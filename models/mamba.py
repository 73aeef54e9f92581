"""Mamba: a selective diagonal state space model (S6), whose step length and maps depend on the input.

    x_t = SiLU(conv(W_x u_t)),   z_t = W_z u_t
    (r_t, B_t, C_t) = P x_t,   Delta_t = softplus(W_r r_t + b_r),   A = -exp(a)
    h_t = exp(Delta_t A) o h_{t-1} + (Delta_t o x_t) B_t,   y_t = h_t C_t + D o x_t
    o_t = W_o (y_t o SiLU(z_t))

A. Gu, T. Dao, "Mamba: Linear-Time Sequence Modeling with Selective State Spaces", COLM 2024. Each of the
`expansion` * n features of x has `state_size` real units of its own. With `negative_eigenvalues` the factor of h is
2 exp(Delta_t A) - 1, so that a unit can change its sign: R. Grazzi, J. Siems, A. Zela, J. Franke, F. Hutter,
M. Pontil, "Unlocking State-Tracking in Linear RNNs Through Negative Eigenvalues", ICLR 2025.

The parameters start as in the authors' program for one layer. A is -1, -2, ... in the units of each feature, and D is
1. Delta starts between 0.001 and 0.1, log-uniform. W_r is U(-1/sqrt(rank), 1/sqrt(rank)), other maps start as torch's
Linear without bias, and the convolution as torch's Conv1d with bias. The program also divides the initial W_o by the
square root of the number of layers and exempts A and D from weight decay. Here W_o, A and D are treated like all other
parameters.

The maps read the m features of the inputs and the output map reads o_t. The state is h, followed by the convolution's
last inputs. For a block with normalisation and a skip connection, as in the paper, use the setting `block`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, silu

from orthobench.matrices.initial import as_parameter, inverse_softplus, torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, Signature, State
from orthobench.recurrence import (
    Convolution,
    GradientTrace,
    Projection,
    gated_scan,
    latest,
    project,
    selective_scan,
    short_convolution,
)

from ._eigenvalues import EIGENVALUES

_SHORTEST_STEP, _LONGEST_STEP = 1e-3, 1e-1


class MambaSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    expansion: Count = Field(2, description="number of features between the maps W_x and W_o, as a multiple of n")
    state_size: Count = Field(16, description="N, number of units of each of these features")
    convolution: int | None = Field(
        4, ge=2, le=8, description="inputs that the short convolution through time reads; none: no convolution"
    )
    step_rank: Count | None = Field(
        None, description="number of features r_t from which the step lengths are computed; none: n / 16, rounded up"
    )
    negative_eigenvalues: bool = Field(
        False, description="the factor of h is 2 exp(Delta A) - 1, in (-1, 1), instead of exp(Delta A), in (0, 1)"
    )
    output_gate: bool = Field(True, description="multiply y by SiLU(z)")

    @property
    def width(self) -> int:
        """The number of features of x."""
        return self.expansion * self.hidden_size

    @property
    def rank(self) -> int:
        """The number of features r_t."""
        return self.step_rank or -(-self.hidden_size // 16)

    @property
    def units(self) -> int:
        """The number of units of h."""
        return self.width * self.state_size


class Mamba(Model):
    version = 1
    title = "Mamba"
    paper = "Gu, Dao. Mamba: Linear-Time Sequence Modeling with Selective State Spaces. COLM 2024"
    cites = "gu2024, grazzi2025"
    look = "longdashdot cross"
    family = "linear"
    learns = Learns("adding", 0.2)
    second_axis = EIGENVALUES
    step_matrices = ()
    cost = "exp(Delta A) of 2n features with 16 units each, at each step and again in the backward pass"
    Settings = MambaSettings

    def __init__(self, settings: MambaSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, width, rank = signature.input_size, settings.hidden_size, settings.width, settings.rank

        def drawn(fan_in: int, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(*shape), fan_in, generator))

        self.input_weight = drawn(m, width, m)
        self.gate_weight = drawn(m, width, m) if settings.output_gate else None
        self.convolution_weight = self.convolution_bias = None
        if (taps := settings.convolution) is not None:
            self.convolution_weight, self.convolution_bias = drawn(taps, taps, width), drawn(taps, width)
        self.selection_weight = drawn(width, rank + 2 * settings.state_size, width)
        self.step_weight = drawn(rank, width, rank)
        shortest, longest = math.log(_SHORTEST_STEP), math.log(_LONGEST_STEP)
        logarithm = torch.empty(width, dtype=torch.float64).uniform_(shortest, longest, generator=generator)
        step = logarithm.exp()
        self.step_bias = as_parameter(inverse_softplus(step))
        units = torch.arange(1, settings.state_size + 1, dtype=torch.get_default_dtype())
        self.rates = nn.Parameter(units.log()[:, None].repeat(1, width))  # a [N, width]
        self.feedthrough = nn.Parameter(torch.ones(width))
        self.mixing_weight = drawn(width, n, width)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, MambaSettings)
        return settings.units + ((settings.convolution or 1) - 1) * settings.width

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        units = self.settings.units
        parts = {"h": slice(0, units), "convolution": slice(units, self.features)}
        return {name: part for name, part in parts.items() if part.start < part.stop}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        settings, reads = self.settings, self.signature.readout != "last"
        h, before = state[0].split((settings.units, self.features - settings.units), dim=-1)
        x, at_end, last = self.convolve(inputs, before)
        parameters: dict[str, Any] = {
            "rates": -self.rates.exp().flatten(),
            "step_weight": self.step_weight,
            "step_bias": self.step_bias,
            "state_size": settings.state_size,
            "negative": settings.negative_eigenvalues,
        }
        if reads:
            gate = None if self.gate_weight is None else Projection(inputs, self.gate_weight)
            y, (h,) = gated_scan(x, self.selection_weight, (h,), trace, self.feedthrough, gate, **parameters)
        else:
            _, (h,) = selective_scan(x, self.selection_weight, (h,), trace, **parameters, reads=False)
            c = linear(at_end, self.selection_weight[-settings.state_size :])
            y = torch.einsum("bnd,tbn->tbd", h.unflatten(-1, (settings.state_size, -1)), c)
            y = y + self.feedthrough * at_end
            y = y if self.gate_weight is None else y * silu(project(inputs[-1:], self.gate_weight))
        return project(y, self.mixing_weight), (torch.cat((h, *last), dim=-1),)

    def convolve(self, inputs: Tensor, before: Tensor) -> tuple[Tensor | Convolution, Tensor, State]:
        """Return x `[T, B, D]` for inputs `[T, B, m]`, its last step `[1, B, D]`, and the convolution's last inputs.

        `before` `[B, (taps - 1) * D]` holds the convolution's inputs before the first step, in the same layout as its
        last inputs. Without a convolution it is empty.
        """
        weight = self.convolution_weight
        if weight is None:
            return silu(project(inputs, self.input_weight)), silu(project(inputs[-1:], self.input_weight)), ()
        taps = len(weight)
        earlier = before.unflatten(-1, (taps - 1, -1)).transpose(0, 1)
        recent = torch.cat((earlier, project(latest(inputs, taps), self.input_weight)))[-taps:]
        at_end = short_convolution(recent[-1:], weight, recent[:-1], self.convolution_bias)
        x = Convolution(Projection(inputs, self.input_weight), weight, earlier, self.convolution_bias)
        return x, at_end, (recent[1:].transpose(0, 1).flatten(1),)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the factors of h depend on the inputs."""
        return {}
