"""AUSSM, the adaptive unitary state space model: complex units that each input turns by angles of its own.

    x_t = conv(W_x u_t),   z_t = W_z u_t,   s_t = SiLU(x_t)
    theta_t = P x_t / sqrt(n) + p,   Delta_t = softplus(W_r R x_t + 2 b_r)
    h_t = exp(i theta_t) o h_{t-1} + (Delta_t o s_t) B^T,   y_t = Re(h_t C) + D o s_t
    o_t = W_o (y_t o SiLU(z_t))

Each of the n features of x has `state_size` complex units N of its own, h is `[n, N]`, and P has a row for each unit. A
step multiplies h by a unitary diagonal matrix, the exponential of a skew-Hermitian one. So a unit can count modulo any
number, but h never decays, and nothing is forgotten. |B| and |C| are softplus of trained numbers, their angles are
trained, and no input changes them. A. Karuvally, F. Nowak, T. A. Keller, C. Amo Alonso, T. J. Sejnowski, H. T.
Siegelmann, "Bridging Expressivity and Scalability with Adaptive Unitary SSMs", NeurIPS 2025.

The equations and initial values are those of a block of the authors' program (`wavesAI/model/aussm.py` and
`extension_cpp/ops.py` of arjunkaruvally/AUSSM, 7b94b83). It adds b_r twice, divides P x by sqrt(n) although P starts as
torch's Linear does, and takes the angles from x before SiLU. Both parts of the numbers behind B and C start as N(0, 1 /
2), D as 1, and p as U(-pi, pi). Maps start as torch's Linear, and the convolution as torch's Conv1d with bias.

The program sums B exp(-i g_t) over the steps, where g_t is the sum of the angles, and turns the sums by g_t. Here the
recurrence is a scan over h, so that the state at the end of a sequence continues it at any length. The maps read the
inputs and the output map reads o_t. In the paper, such blocks alternate with those of Mamba, each with a norm before it
and a skip connection; here the setting `block` surrounds any cell. The state is h, followed by the convolution's last
inputs.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import linear, silu, softplus

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, SecondAxis, Signature, State
from orthobench.recurrence import GradientTrace, carried_inputs, convolved, diagonal_recurrence, project


class AUSSMSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    state_size: Count = Field(16, description="N, number of complex units of each feature")
    convolution: int | None = Field(
        4, ge=2, le=8, description="inputs that the short convolution through time reads; none: no convolution"
    )
    step_rank: Count | None = Field(
        None, description="number of features R x_t from which the step lengths are computed; none: state_size"
    )

    @property
    def units(self) -> int:
        """The number of complex units of h."""
        return self.hidden_size * self.state_size


class AUSSM(Model):
    version = 1
    title = "AUSSM"
    paper = "Karuvally et al. Bridging Expressivity and Scalability with Adaptive Unitary SSMs. NeurIPS 2025"
    cites = "karuvally2025"
    look = "longdashdot cross-open"
    family = "linear"
    learns = Learns("adding", 0.2, {"learning_rate": 1e-2, "state_size": 4}, gate={"state_size": 4})
    step_matrices = ()
    cost = "the cosine and sine of n angles for each of 16 units at every step, and a scan over as many complex units"
    second_axis = SecondAxis(
        ({"state_size": 8}, {"state_size": 16}, {"state_size": 32}),
        "d_state of the program's algorithmic tasks (`experiments/all/algorithmic.sh`)",
    )
    Settings = AUSSMSettings

    def __init__(self, settings: AUSSMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, size = signature.input_size, settings.hidden_size, settings.state_size
        rank = settings.step_rank or size

        def drawn(fan_in: int, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(*shape), fan_in, generator))

        def complex_normal() -> nn.Parameter:
            """Draw both parts of complex numbers of variance 1, `[2, N]`."""
            return nn.Parameter(math.sqrt(0.5) * torch.randn(2, size, generator=generator))

        self.input_weight, self.gate_weight = drawn(m, n, m), drawn(m, n, m)
        self.convolution_weight = self.convolution_bias = None
        if (taps := settings.convolution) is not None:
            self.convolution_weight, self.convolution_bias = drawn(taps, taps, n), drawn(taps, n)
        self.angle_weight = drawn(n, settings.units, n)
        self.angle_bias = nn.Parameter(torch.empty(settings.units).uniform_(-math.pi, math.pi, generator=generator))
        self.selection_weight = drawn(n, rank, n)
        self.step_weight, self.step_bias = drawn(rank, n, rank), drawn(rank, n)
        self.write_map, self.read_map = complex_normal(), complex_normal()
        self.feedthrough = nn.Parameter(torch.ones(n))
        self.mixing_weight = drawn(n, n, n)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, AUSSMSettings)
        return 2 * settings.units + ((settings.convolution or 1) - 1) * settings.hidden_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        units = 2 * self.settings.units
        parts = {"h": slice(0, units), "convolution": slice(units, self.features)}
        return {name: part for name, part in parts.items() if part.start < part.stop}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        units = 2 * self.settings.units
        h, before = state[0].split((units, self.features - units), dim=-1)
        x, last = project(inputs, self.input_weight), before  # which has no features without a convolution
        if (weight := self.convolution_weight) is not None:
            earlier, last = carried_inputs(before, x, len(weight))
            x = convolved(x, weight, earlier, self.convolution_bias)
        s = silu(x)
        # As a product with a matrix of one column, whose gradient is two products and no tensor of the size of h.
        written = linear((self.steps(x) * s)[..., None], _parts(self.write_map)[:, None])
        h, (final,) = diagonal_recurrence(written.flatten(-2), self.turns(x), (h,), trace, is_complex=True)
        if self.signature.readout == "last":
            h, s, inputs = final[None], s[-1:], inputs[-1:]
        y = h.unflatten(-1, (len(self.feedthrough), -1)) @ _parts(self.read_map, conjugate=True) + self.feedthrough * s
        o = project(y * silu(project(inputs, self.gate_weight)), self.mixing_weight)
        return o, (torch.cat((final, last), dim=-1),)

    def steps(self, x: Tensor) -> Tensor:
        """Return Delta `[T, B, n]`."""
        return softplus(project(project(x, self.selection_weight), self.step_weight, 2 * self.step_bias))

    def turns(self, x: Tensor) -> Tensor:
        """Return exp(i theta) `[T, B, 2 * n * N]`, the parts of a unit next to each other."""
        angles = project(x, self.angle_weight / math.sqrt(x.shape[-1]), self.angle_bias)
        return torch.stack((angles.cos(), angles.sin()), dim=-1).flatten(-2)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the angles of a step depend on the inputs."""
        return {}


def _parts(numbers: Tensor, conjugate: bool = False) -> Tensor:
    """Return the parts of the complex numbers softplus(r) exp(i a) `[2 * N]`, next to each other, for (r, a) `[2, N]`.

    The sum of these parts of the conjugate, times those of h, is the real part of h C.
    """
    modulus, angle = softplus(numbers[0]), numbers[1]
    imaginary = -angle.sin() if conjugate else angle.sin()
    return torch.stack((modulus * angle.cos(), modulus * imaginary), dim=-1).flatten()
