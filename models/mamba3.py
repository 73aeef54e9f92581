"""Mamba-3: memories that decay, are written to with the trapezoidal rule, and turn by angles that the inputs choose.

    S_t = a_t (S_{t-1} + (1 - l_t) Delta_t B_{t-1} x_{t-1}^T) + l_t Delta_t B_t x_t^T,   y_t = S_t^T C_t + D x_t
    Delta_t = softplus(w_t + b),   a_t = exp(-Delta_t max(softplus(p_t), 1e-4)),   l_t = s(q_t)
    B_t = R_t (RMSNorm(B'_t) + b_B),   C_t = R_t (RMSNorm(C'_t) + b_C),   o_t = W_o (y_t o SiLU(z_t))

R_t turns pair i of the features by the sum of pi tanh(r_i) Delta over the steps so far. This is the same as a complex
state whose factors have these angles. x, z, B', C', w, p, q and r are maps of the input. Each head has its own memory
S, its own Delta, a and l, and its own biases; B', C' and r are the same for all heads. With `rotation=0` the state is
real. With `trapezoid=false` l is 1, and the recurrence is Mamba-2's. A. Lahoti, K. Y. Li, B. Chen, C. Wang, A. Bick, J.
Z. Kolter, T. Dao, A. Gu, "Mamba-3: Improved Sequence Modeling using State Space Principles", ICLR 2026.

The layer and its initial values follow the authors' program as first released (`mamba_ssm/modules/mamba3.py`, 5235bdc
of 17 March 2026, D-67), with one input and output at a time. It also has a form with several (MIMO). Since c69aaab of 2
June 2026, its rate has another activation than softplus: 1 + p for p >= 0 and 1 / (1 - p) below (D-69). Maps start as
torch's Linear without bias, b_B, b_C and D at 1, and softplus(b) log-uniform between 0.001 and 0.1. The program's
`state_size` is 128.

The x of a head has `expansion` * n / heads features, which the program sets to 64. The state holds the memories, the
angles, and B and x of the last step.
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from orthobench.matrices.initial import as_parameter, inverse_softplus, torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, Signature, State
from orthobench.recurrence import (
    GradientTrace,
    Projection,
    decaying_memory,
    next_steps,
    previous_steps,
    project,
    read_memory,
    turned_heads,
)

from ._heads import HeadsSettings

_SHORTEST_STEP, _LONGEST_STEP = 1e-3, 1e-1
_LEAST_RATE, _NORM_EPSILON = 1e-4, 1e-5


class Mamba3Settings(HeadsSettings):
    expansion: Count = Field(2, description="features of x, z and y, as a multiple of n")
    state_size: Count = Field(16, description="N, features of B and C: rows of the memory of each head")
    rotation: float = Field(
        0.5, ge=0, le=1, description="share of the features of B and C that turn, in pairs; 0: a real state"
    )
    trapezoid: bool = Field(
        True,
        description="also write the previous input, with a weight that depends on the input; false: Mamba-2's rule",
    )

    @property
    def width(self) -> int:
        """The number of features of x."""
        return self.expansion * self.hidden_size

    @property
    def angles(self) -> int:
        """The number of pairs of features of B that turn."""
        return int(self.state_size * self.rotation) // 2

    @property
    def parts(self) -> tuple[int, int, int, int]:
        """The numbers of features of the memories, of the angles, and of B and x of the last step."""
        return self.width * self.state_size, self.heads * self.angles, self.heads * self.state_size, self.width


def _outer(keys: Tensor, values: Tensor) -> Tensor:
    """Return the memories `[B, width * N]` of keys `[B, heads, N]` and values `[B, width]`."""
    memories: Tensor = (keys[..., None] * values.unflatten(-1, (keys.shape[1], 1, -1))).flatten(1)
    return memories


class Mamba3(Model):
    version = 1
    title = "Mamba-3"
    paper = "Lahoti et al. Mamba-3: Improved Sequence Modeling using State Space Principles. ICLR 2026"
    cites = "lahoti2026"
    look = "longdashdot triangle-up-open"
    family = "linear"
    learns = Learns("adding", 0.2)
    step_matrices = ()
    cost = "a memory of 16 rows for 2n features, and B and C turned for each head"
    Settings = Mamba3Settings

    def __init__(self, settings: Mamba3Settings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, width, heads = signature.input_size, settings.hidden_size, settings.width, settings.heads

        def linear(outputs: int, inputs: int = m) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(outputs, inputs), inputs, generator))

        self.input_weight, self.gate_weight = linear(width), linear(width)
        self.selection_weight = linear(sum(self.selected_sizes()))
        shortest, longest = math.log(_SHORTEST_STEP), math.log(_LONGEST_STEP)
        step = torch.empty(heads, dtype=torch.float64).uniform_(shortest, longest, generator=generator).exp()
        self.step_bias = as_parameter(inverse_softplus(step))
        self.write_norm, self.read_norm = (nn.Parameter(torch.ones(settings.state_size)) for _ in range(2))
        self.write_bias, self.read_bias = (nn.Parameter(torch.ones(heads, settings.state_size)) for _ in range(2))
        self.feedthrough = nn.Parameter(torch.ones(heads))
        self.mixing_weight = linear(n, width)

    def selected_sizes(self) -> list[int]:
        """Return the numbers of features of B', C', w, p, q and r."""
        settings = self.settings
        return [*2 * [settings.state_size], *2 * [settings.heads], settings.trapezoid * settings.heads, settings.angles]

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, Mamba3Settings)
        return sum(settings.parts)

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        parts, start = {}, 0
        for name, size in zip(("h", "angle", "B", "x"), self.settings.parts, strict=True):
            parts[name] = slice(start, start + size)
            start += size
        return {name: part for name, part in parts.items() if part.start < part.stop}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        settings = self.settings
        heads, size, reads = settings.heads, settings.state_size, self.signature.readout != "last"
        memory, angle, last_key, last_value = state[0].split(settings.parts, dim=-1)
        keys, queries, *steps, turns = project(inputs, self.selection_weight).split(self.selected_sizes(), dim=-1)
        step = softplus(steps[0] + self.step_bias)
        log_decay = -softplus(steps[1]).clamp(min=_LEAST_RATE) * step
        now = step * steps[2].sigmoid() if settings.trapezoid else step
        earlier = step - now  # the weight of the previous input
        angles = (math.pi * turns.tanh()[..., None, :] * step[..., None]).cumsum(0)
        # Reduced because the last angle is part of the state, and would grow for as long as a sequence goes on.
        angles = (angles + angle.unflatten(-1, (heads, settings.angles))).remainder(2 * math.pi)
        cosine, sine = angles.cos(), angles.sin()
        key = turned_heads(keys, self.write_norm, self.write_bias, cosine, sine, _NORM_EPSILON)
        if reads:
            # The outputs read a memory that each step writes the previous input to, so that none depends on a later
            # input. It has both parts of that input, because this step's decay and share are known by then.
            query = self.turned_queries(queries, cosine, sine)
            last_key = last_key.unflatten(-1, (heads, size))
            written = log_decay.exp() * (earlier + previous_steps(now))
            written = written[..., None] * torch.cat((last_key[None], key))[:-1]
            weight = torch.cat((log_decay, query.flatten(-2), written.flatten(-2)), dim=-1)
            read = project(inputs, self.input_weight)
            previous = torch.cat((last_value[None], read))[:-1]
            y, (memory,) = decaying_memory(previous, weight, (memory,), trace, heads, size)
            memory = memory + _outer(now[-1][..., None] * key[-1], read[-1])
            own = self.feedthrough + now * (query * key).sum(-1)
        else:
            # The memory also has the part that the next step will write of this input, which has no output to read it.
            written = (key * (now + next_steps(earlier))[..., None]).flatten(-2)
            memory = memory + _outer(earlier[0][..., None] * last_key.unflatten(-1, (heads, size)), last_value)
            weight = torch.cat((log_decay, written), dim=-1)
            source = Projection(inputs, self.input_weight)
            _, (memory,) = decaying_memory(source, weight, (memory,), trace, heads, size, reads=False)
            inputs = inputs[-1:]
            read = project(inputs, self.input_weight)
            rows = slice(size, 2 * size)
            query = self.turned_queries(project(inputs, self.selection_weight[rows]), cosine[-1:], sine[-1:])
            y, own = read_memory(query[0], memory)[None], self.feedthrough
        y = y + (own[..., None] * read.unflatten(-1, (heads, -1))).flatten(-2)
        final = torch.cat((memory, angles[-1].flatten(1), key[-1].flatten(1), read[-1]), dim=-1)
        return project(y * silu(project(inputs, self.gate_weight)), self.mixing_weight), (final,)

    def turned_queries(self, features: Tensor, cosine: Tensor, sine: Tensor) -> Tensor:
        """Return C `[T, B, heads, N]` from C' `[T, B, N]` and the angles' cosines and sines `[T, B, heads, pairs]`."""
        return turned_heads(features, self.read_norm, self.read_bias, cosine, sine, _NORM_EPSILON)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the factors of S and the angles depend on the inputs."""
        return {}
