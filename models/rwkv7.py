"""RWKV-7: memories with a vector of decays and a vector of learning rates, a generalised delta rule.

    S_t = (diag(w_t) - (a_t o u_t) u_t^T) S_{t-1} + k~_t v_t^T,   y_t = S_t^T r_t
    w_t = exp(-e^(-1/2) s(z_t)),   u_t = k_t o c / max(|k_t o c|, 1e-12),   k~_t = k_t o (1 + (a_t - 1) o d)
    h_t = W_o ((GroupNorm(y_t) + (r_t . (e o k~_t)) v_t) o g_t)

B. Peng et al., "RWKV-7 'Goose' with Expressive Dynamic State Evolution", COLM 2025. r, k and v are maps of the inputs.
z, a and g pass through a layer of few features: z_t = W_2 tanh(W_1 x) + b, a_t = s(A_2 A_1 x + b'), g_t = G_2 s(G_1 x).
Each of the six reads a mixture of its own of the last two inputs, x = x_t + mu o (x_{t-1} - x_t). Each head has its own
S. As a is in (0, 1) and w above 0.545, the eigenvalues of a step are real and in (-0.455, 1).

The layer and its initial values follow the first layer of flash-linear-attention (`fla/layers/rwkv7.py`, bc3b101). That
library warns that its layer may differ from the author's program, BlinkDL/RWKV-LM, which draws r, k and v uniformly
(D-68). Both divide keys by max(|k|, 1e-12), the default of torch's `normalize`; version 1 of this model divided them by
(|k|^2 + 1e-6)^(1/2). The maps of r and v start orthogonal, that of k a tenth of that. The first maps of z, a and g
start at 0, and the second ones orthogonal times 0.1. The library starts W_o at 0, which fits a block with a skip
connection (`mixing_start=zeros`), and the norm's weight at (layer / layers)^0.7, which is 1 for a single layer. Its
deeper layers also mix v with that of the first layer, which a cell here cannot read.

hidden_size n is the number of heads times the size of a value. The library has n / 64 heads, and here there are 4. The
state holds the memories, followed by what the next step reads of the last input.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import layer_norm

from orthobench.matrices.initial import as_parameter, torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, Signature, State
from orthobench.recurrence import (
    GradientTrace,
    Projection,
    latest,
    previous_steps,
    project,
    resolved,
    rwkv7,
    written_keys,
)

from ._heads import HeadsSettings

_NORM_EPSILON = 1e-5


class RWKV7Settings(HeadsSettings):
    rank: Count | None = Field(
        None,
        description="features through which decays and rates are computed; none: 5 / 128 sqrt(n) times a head's size, "
        "rounded to a multiple of 32, at least 32",
    )
    gate_rank: Count | None = Field(
        None,
        description="features through which the output gate is computed; none: 5 sqrt(n), rounded to a multiple of 32, "
        "at least 32",
    )
    mixing_start: Literal["linear", "zeros"] = Field(
        "linear", description="start of W_o; linear: as torch.nn.Linear; zeros: 0, as in the authors' library"
    )

    @property
    def low(self) -> int:
        """The number of features through which decays, and likewise rates, are computed."""
        return self.rank or max(32, 32 * round(2.5 * self.hidden_size**0.5 * self.head_size / 64 / 32))

    @property
    def low_gate(self) -> int:
        """The number of features through which the gate is computed."""
        return self.gate_rank or max(32, 32 * round(5 * self.hidden_size**0.5 / 32))

    @property
    def memory(self) -> int:
        """The number of entries of all memories."""
        return self.hidden_size * self.head_size

    @property
    def mixed(self) -> int:
        """The number of features that read a mixture of two inputs."""
        return 3 * self.hidden_size + self.low_gate + 2 * self.low


class RWKV7(Model):
    version = 2
    title = "RWKV-7"
    paper = "Peng et al. RWKV-7 'Goose' with Expressive Dynamic State Evolution. COLM 2025"
    cites = "peng2025"
    look = "longdashdot circle-open"
    family = "linear"
    learns = Learns("adding", 0.2)
    step_matrices = ()
    cost = "keys, values, decays and rates of 4n features at each step, and a memory with n rows for each head"
    Settings = RWKV7Settings

    def __init__(self, settings: RWKV7Settings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, size = signature.input_size, settings.hidden_size, settings.head_size

        def orthogonal(rows: int, columns: int, gain: float) -> Tensor:
            return nn.init.orthogonal_(torch.empty(rows, columns), gain, generator)

        # The rows of W_r, W_k, W_v, G_1, W_1 and A_1, and the mixture that each of the six reads.
        low = torch.zeros(settings.low_gate + 2 * settings.low, m)
        self.input_weight = nn.Parameter(
            torch.cat((orthogonal(n, m, 1.0), orthogonal(n, m, 0.1), orthogonal(n, m, 1.0), low))
        )
        place = torch.arange(m, dtype=torch.float64) / m
        self.shift = as_parameter(torch.stack([1 - place**power for power in (0.2, 0.7, 0.7, 0.2, 0.9, 0.9)]))
        feature = torch.arange(n, dtype=torch.float64)
        line = feature / max(1, n - 1)
        centred = (feature % size - (size - 1) / 2) / max(1 / 2, (size - 1) / 2)
        zigzag = centred * centred.abs()
        self.decay_weight = nn.Parameter(orthogonal(n, settings.low, 0.1 * _gain(n, settings.low)))
        self.decay_bias = as_parameter(-6 + 6 * line + 0.5 + 2.5 * zigzag)
        self.rate_weight = nn.Parameter(orthogonal(n, settings.low, 0.1 * _gain(n, settings.low)))
        self.rate_bias = as_parameter(-0.19 + 0.3 * zigzag + 0.4 * (line - 0.5))
        self.gate_weight = nn.Parameter(orthogonal(n, settings.low_gate, 0.1 * _gain(n, settings.low_gate)))
        self.key_scale = as_parameter(0.71 - 0.1 * (line - 0.5))
        self.key_rate = nn.Parameter(torch.full((n,), 1.02))
        self.bonus = nn.Parameter(torch.full((n,), -0.04))
        self.norm_weight, self.norm_bias = nn.Parameter(torch.ones(n)), nn.Parameter(torch.zeros(n))
        mixing = torch.zeros(n, n)
        self.mixing_weight = nn.Parameter(
            torch_linear_(mixing, n, generator) if settings.mixing_start == "linear" else mixing
        )

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        assert isinstance(settings, RWKV7Settings)
        return settings.memory + settings.mixed

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def state_parts(self) -> dict[str, slice]:
        memory = self.settings.memory
        return {"h": slice(0, memory), "shift": slice(memory, self.features)}

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        settings, n = self.settings, self.hidden_size
        reads = self.signature.readout != "last"
        memory, before = state[0].split((settings.memory, settings.mixed), dim=-1)
        now, earlier = self.maps()
        both = torch.cat((now, earlier), dim=1)
        gates = slice(3 * n, 3 * n + settings.low_gate)
        low = slice(gates.stop, settings.mixed)

        def mixed(inputs: Tensor, *parts: slice) -> Projection:
            """Return features that read two inputs `[T, B, *]`; `before` is added to those of the first step."""
            weight, first = torch.cat([both[part] for part in parts]), torch.cat([before[:, part] for part in parts], 1)
            return Projection(torch.cat((inputs, previous_steps(inputs)), dim=-1), weight, first=first)

        projected = mixed(inputs, slice(0 if reads else n, 3 * n), low)
        x = resolved(projected) if reads else None
        vectors = self.decay_bias, self.rate_weight, self.rate_bias, self.key_scale, self.key_rate
        y, (memory,) = rwkv7(
            projected if x is None else x,
            self.decay_weight,
            (memory,),
            trace,
            *vectors,
            settings.heads,
            settings.head_size,
            reads=reads,
        )
        gate_inputs = resolved(mixed(inputs, gates)) if reads else None
        if x is None or gate_inputs is None:  # only the last step is read, which depends on the last two inputs
            recent = latest(inputs, 2)
            x, gate_inputs = resolved(mixed(recent, slice(0, 3 * n), low))[-1:], resolved(mixed(recent, gates))[-1:]
            query = x[0, :, :n].unflatten(-1, (settings.heads, -1))
            y = torch.einsum("bhk,bhkv->bhv", query, memory.unflatten(-1, (*query.shape[1:], -1))).flatten(1)[None]
        final = torch.cat((memory, project(inputs[-1:], earlier)[0]), dim=-1)
        return self.read(y, x, gate_inputs), (final,)

    def maps(self) -> tuple[Tensor, Tensor]:
        """Return the maps of the input and of the one before it, `[mixed, m]` each."""
        settings, n = self.settings, self.hidden_size
        parts = self.input_weight.split((n, n, n, settings.low_gate, settings.low, settings.low))
        earlier = torch.cat([share * part for share, part in zip(self.shift, parts, strict=True)])
        return self.input_weight - earlier, earlier

    def read(self, y: Tensor, x: Tensor, gate_inputs: Tensor) -> Tensor:
        """Return h `[T, B, n]`, given the readings y `[T, B, n]` and what they were computed from."""
        heads, n = self.settings.heads, self.hidden_size
        query, key, value = x[..., : 3 * n].chunk(3, dim=-1)
        rates = project(x[..., -self.settings.low :], self.rate_weight, self.rate_bias).sigmoid()
        written = written_keys(key, rates, self.key_rate)
        size = (query * written * self.bonus).unflatten(-1, (heads, -1)).sum(-1, keepdim=True)
        by_head = y.unflatten(-1, (heads, -1))  # torch's group_norm refuses a single value of one feature
        normed = layer_norm(by_head, by_head.shape[-1:], eps=_NORM_EPSILON * self.settings.head_size).flatten(-2)
        h = normed * self.norm_weight + self.norm_bias + (size * value.unflatten(-1, (heads, -1))).flatten(-2)
        return project(h * project(gate_inputs.sigmoid(), self.gate_weight), self.mixing_weight)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the matrices of a step depend on the inputs."""
        return {}


def _gain(rows: int, columns: int) -> float:
    """Return the factor of a wide map's orthogonal start."""
    return math.sqrt(columns / rows) if columns > rows else 1.0
