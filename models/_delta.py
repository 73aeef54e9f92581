"""The layer of the delta-rule models: keys, values and queries from the inputs, a memory, a norm and an output map.

    q_t, k_t, v_t = SiLU(convolution of W x),   beta_t = sigmoid(B x_t), or twice that
    y_t = q_t^T S_t of the delta rule with q_t and k_t at unit length, where each head has its own memory S
    h_t = W_o (RMSNorm(y_t) o SiLU(G x_t))

The layers and their initial values follow the authors' library, flash-linear-attention (`fla/layers`). Maps start as
torch's Linear without bias, a convolution of 4 inputs as U(-1/2, 1/2). In DeltaProduct's program maps start smaller
(`map_start=xavier`). RMSNorm acts on each head separately, with a shared weight. The library scales queries by 1 /
sqrt(key size). Here the norm's constant of 1e-5 is multiplied by the key size instead, which gives the same h.

Without a block, the maps read the m features of the task's inputs directly, and the model's output map reads h. The
state holds the memories, followed by the convolution's inputs of the last steps.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Signature, State
from orthobench.recurrence import (
    Convolution,
    GradientTrace,
    Projection,
    delta_rule,
    head_norm,
    latest,
    normalized,
    project,
    read_memory,
    short_convolution,
)

from ._heads import MemoryModel, MemorySettings, drawn_decays

_UNIT_EPSILON, _NORM_EPSILON = 1e-6, 1e-5
_XAVIER_GAIN = 2**-2.5
"""The gain of the maps of DeltaProduct's program (`fla/layers/gated_deltaproduct.py`)."""


class DeltaSettings(MemorySettings):
    negative_eigenvalues: bool = Field(
        False,
        description="beta = 2 sigmoid(.) instead of sigmoid(.): a step's eigenvalues reach from 1 to -1, not to 0",
    )
    output_gate: bool = Field(True, description="multiply the normalised memory outputs by SiLU(G x)")
    map_start: Literal["linear", "xavier"] = Field(
        "linear",
        description="start of the maps; linear: as torch.nn.Linear; xavier: each map Glorot-uniform times 2^-2.5, as "
        "in DeltaProduct's program",
        json_schema_extra={"neutral": "linear"},
    )

    @property
    def steps_of_token(self) -> int:
        """The number of times that each input corrects the memory."""
        return 1

    @property
    def has_decay(self) -> bool:
        """Whether the memory decays."""
        return False

    @property
    def channels(self) -> int:
        """The number of features of queries, keys and values together."""
        return self.heads * (self.keys + self.steps_of_token * (self.keys + self.head_size))


class DeltaModel(MemoryModel):
    """A model whose memories follow the delta rule."""

    settings: DeltaSettings
    step_matrices = ()
    cost: ClassVar[str] = "queries, keys and values of 3n features pass through a convolution and a memory each step"
    Settings = DeltaSettings

    def __init__(self, settings: DeltaSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, heads = signature.input_size, settings.hidden_size, settings.heads

        def drawn(*outputs: int, inputs: int = m) -> nn.Parameter:
            """Draw maps with these numbers of outputs, stacked into one matrix."""
            weight = torch.empty(sum(outputs), inputs)
            if settings.map_start == "linear":
                return nn.Parameter(torch_linear_(weight, inputs, generator))
            for part in weight.split(outputs):
                nn.init.xavier_uniform_(part, gain=_XAVIER_GAIN, generator=generator)
            return nn.Parameter(weight)

        corrections, keys = settings.steps_of_token, heads * settings.keys
        self.input_weight = drawn(*(1 + corrections) * [keys], *corrections * [n])
        self.beta_weight = drawn(*corrections * [heads])
        taps = settings.convolution
        self.convolution_weight = None
        if taps is not None:
            self.convolution_weight = nn.Parameter(torch_linear_(torch.empty(taps, settings.channels), taps, generator))
        self.decay_weight = None
        if settings.has_decay:
            self.decay_weight = drawn(heads)
            self.decay_rate, self.decay_bias = drawn_decays(heads, generator)
        self.gate_weight = drawn(n) if settings.output_gate else None
        self.norm_weight = nn.Parameter(torch.ones(settings.head_size))
        self.mixing_weight = drawn(n, inputs=n)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        settings = self.settings
        reads = self.signature.readout != "last"
        skipped = 0 if reads else settings.heads * settings.keys  # only the last query reads the memory
        memory, before = state[0].split((settings.memory, self.features - settings.memory), dim=-1)
        weight = self.convolution_weight
        x: Convolution | Tensor
        if weight is None:
            x = silu(project(inputs, self.input_weight[skipped:]))
        else:
            taps = len(weight)
            before = before.unflatten(-1, (taps - 1, -1)).transpose(0, 1)
            source = Projection(inputs, self.input_weight[skipped:])
            x = Convolution(source, weight[:, skipped:], before[..., skipped:])
        y, (memory,) = delta_rule(
            x, self.coefficients(inputs), (memory,), trace,
            settings.heads, settings.keys, settings.steps_of_token, settings.has_decay, _UNIT_EPSILON, reads,
        )  # fmt: skip
        last: tuple[Tensor, ...] = ()
        if weight is None:
            q = silu(project(inputs[-1:], self.input_weight[:skipped]))
        else:
            recent = torch.cat((before, project(latest(inputs, taps), self.input_weight)))[-taps:]
            last = (recent[1:].transpose(0, 1).flatten(1),)
            q = short_convolution(recent[-1:, :, :skipped], weight[:, :skipped], recent[:-1, :, :skipped])
        if not reads:
            inputs = inputs[-1:]
            y = read_memory(normalized(q[0].unflatten(-1, (settings.heads, -1)), _UNIT_EPSILON), memory)[None]
        return self.read(y, inputs), (torch.cat((memory, *last), dim=-1),)

    def coefficients(self, inputs: Tensor) -> Tensor:
        """Return the betas and, with a decay, its logarithm, each `[T, B, heads]`."""
        beta = project(inputs, self.beta_weight).sigmoid()
        beta = 2 * beta if self.settings.negative_eigenvalues else beta
        if self.decay_weight is None:
            return beta
        step = softplus(project(inputs, self.decay_weight) + self.decay_bias)
        return torch.cat((beta, -self.decay_rate.exp() * step), dim=-1)

    def read(self, y: Tensor, inputs: Tensor) -> Tensor:
        """Return h `[T, B, n]`, given the outputs y of the memories `[T, B, n]` and the inputs `[T, B, m]`."""
        gate = None if self.gate_weight is None else Projection(inputs, self.gate_weight)
        h = head_norm(y, self.norm_weight, _NORM_EPSILON * self.settings.keys, gate)
        return project(h, self.mixing_weight)

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the matrices of the delta rule depend on the inputs."""
        return {}
