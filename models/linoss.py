"""LinOSS, linear oscillatory state space: forced harmonic oscillators, discretised with learnt steps.

    z_t = z_{t-1} + Delta o (-A o y' + B u_t),   y_t = y_{t-1} + Delta o z_t
    o_t = Re(C y_t) + D u_t

With `discretization` = IM (implicit) y' is y_t, with IMEX (implicit and explicit) y' is y_{t-1}. A step multiplies each
unit's (y, z) by a real 2 x 2 matrix. IM's is a contraction wherever A > 0; IMEX's has determinant 1 and preserves
energy.

T. K. Rusch, D. Rus, "Oscillatory State-Space Models", ICLR 2025. A = relu(a) with a ~ U(0, 1), Delta = sigmoid(s) with
s ~ U(0, 1). B `[P, m]` and C `[n, P]` are complex, each part uniform in +-1/sqrt(m) and +-1/sqrt(P), and D ~ N(0, 1).
So y and z are complex too: `state_size` units P have 2P real features each. The layer is linear and has n outputs.

In the paper inputs and outputs have equal size, and D is diagonal. If the sizes differ here, D is a matrix `[n, m]`
drawn from N(0, 1/m). The paper surrounds the layer with a block of normalisation, GELU, gated linear unit and skip
connection; here the setting `block` does so for any cell. IMEX is stable while Delta^2 A <= 4, which neither the
program nor this file enforces.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear

from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, SecondAxis, Signature, State
from orthobench.recurrence import GradientTrace, oscillators, project


class LinOSSSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    state_size: Count = Field(64, description="P, number of complex oscillators")
    discretization: Literal["IM", "IMEX"] = Field(
        "IM", description="IM: implicit, forgets; IMEX: implicit and explicit, preserves energy"
    )


class LinOSS(Model):
    version = 1
    title = "LinOSS"
    paper = "Rusch, Rus. Oscillatory State-Space Models. ICLR 2025"
    cites = "rusch2025"
    look = "longdash square"
    family = "linear"
    affine_if = {"block": None}
    # A linear layer cannot end below about half of the baseline.
    learns = Learns("copying", 0.8, {"discretization": "IMEX"}, gate={"discretization": "IMEX"})
    second_axis = SecondAxis(
        ({"block": "none", "state_size": 24}, {"block": "residual", "block_size": 16, "state_size": 24}),
        "the paper's block, at a width that leaves most of a small model's parameters to the cell",
    )
    Settings = LinOSSSettings

    def __init__(self, settings: LinOSSSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, n, p = signature.input_size, settings.hidden_size, settings.state_size
        self.discretization = settings.discretization

        def uniform(*shape: int, low: float, high: float) -> nn.Parameter:
            return nn.Parameter(torch.empty(*shape).uniform_(low, high, generator=generator))

        self.stiffness, self.step = (uniform(p, low=0, high=1) for _ in range(2))
        # Rows j and P+j of B are the real and the imaginary part of unit j; of C, columns j and P+j are Re C and -Im C.
        self.input_weight = uniform(2 * p, m, low=-1 / math.sqrt(m), high=1 / math.sqrt(m))
        self.state_weight = uniform(n, 2 * p, low=-1 / math.sqrt(p), high=1 / math.sqrt(p))
        shape = (n,) if m == n else (n, m)
        feedthrough = torch.randn(shape, generator=generator)
        self.feedthrough = nn.Parameter(feedthrough if m == n else feedthrough / math.sqrt(m))

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, LinOSSSettings)
        return 2 * settings.state_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def initial_state(self, batch_size: int) -> State:
        return super().initial_state(batch_size) * 2

    def state_parts(self) -> dict[str, slice]:
        return {"h": slice(0, self.features), "z": slice(self.features, 2 * self.features)}

    def coefficients(self) -> Tensor:
        """Return a, b, c, d of z_t = a z_{t-1} + b y_{t-1} + c B u_t and y_t = y_{t-1} + d z_t, `[4, P]`."""
        step = self.step.sigmoid()
        pull = step * self.stiffness.relu()
        # IM: z_t (1 + Delta^2 A) = z_{t-1} + Delta (-A y_{t-1} + B u_t)
        keep = 1 / (1 + step * pull) if self.discretization == "IM" else torch.ones_like(step)
        return torch.stack((keep, -pull * keep, step * keep, step))

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        driven = project(inputs, self.input_weight)
        y, final = oscillators(driven, self.coefficients().repeat(1, 2).flatten(), state, trace)
        if self.signature.readout == "last":
            inputs, y = inputs[-1:], final[0][None]
        skip = self.feedthrough * inputs if self.feedthrough.dim() == 1 else linear(inputs, self.feedthrough)
        return project(y, self.state_weight) + skip, final

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return W `[2P, 2P]`, which multiplies (y, z); it is the same for real and imaginary parts."""
        a, b, _, d = self.coefficients()
        blocks = ((1 + d * b, d * a), (b, a))
        return {"W": torch.cat([torch.cat([torch.diag(each) for each in row], dim=1) for row in blocks])}
