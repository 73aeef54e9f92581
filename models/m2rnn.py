"""M2RNN, the matrix-to-matrix RNN: a matrix state for each head, which a trained matrix and tanh transform.

    q_t, k_t, v_t = SiLU(conv(W_x u_t)),   f_t = exp(-exp(a) softplus(w_f u_t + b))
    H_t = f_t H_{t-1} + (1 - f_t) tanh(H_{t-1} W + k_t v_t^T),   y_t = q_t^T H_t + D o v_t
    o_t = W_o RMSNorm(y_t o SiLU(W_g u_t))

Each head has its own H `[key_size, n / heads]`, W, D, v and f; q and k are the same for all heads. The rows of H go
through W and tanh separately, and the key decides how much of the value each row receives. M. Mishra, S. Tan, I.
Stoica, J. Gonzalez, T. Dao, "M2RNN: Non-Linear RNNs with Matrix-Valued States for Scalable Language Modeling", arXiv
2603.14360, 2026.

The layer is that of the authors' program (`sequence_mixer_blocks/m2rnn/module.py` of open-lm-engine/lm-engine,
36bad91), with the options of its language models (`configs/research/m2rnn`). RMSNorm is over all n features. W starts
as the identity, D as 1, exp(a) as U(0, 16), and softplus(b) log-uniform between 0.001 and 0.1, so that most heads
remember for long. The program draws the maps from N(0, 0.02^2), for a model of 24 blocks. Here they start as torch's
Linear without bias, as in the authors' library of layers (`xma/layers/m2rnn`). The program's values have 16 features
and its keys 64. It also limits each entry of dL/dH_t to 1; here `clip_norm` limits the gradient of all parameters.

Without a block, the maps read the inputs directly, and the output map reads o_t. The state holds the memories, followed
by the convolution's inputs of the last steps.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn.functional import silu, softplus

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Learns, Signature, State
from orthobench.recurrence import (
    GradientTrace,
    carried_inputs,
    head_norm,
    nonlinear_memory,
    project,
    read_memory,
    short_convolution,
    spread_heads,
)

from ._heads import MemoryModel, MemorySettings, drawn_decays

_NORM_EPSILON = 1e-5


class M2RNNSettings(MemorySettings):
    @property
    def channels(self) -> int:
        """The number of features of the query, the key and the values together."""
        return 2 * self.keys + self.hidden_size


class M2RNN(MemoryModel):
    version = 1
    title = "M2RNN"
    paper = "Mishra et al. M2RNN: Non-Linear RNNs with Matrix-Valued States for Scalable Language Modeling. 2026"
    cites = "mishra2026"
    look = "longdashdot star-open"
    family = "gated"
    learns = Learns("adding", 0.2)
    step_matrices = ()
    cost = "a product with all rows of a memory of n^2 / heads numbers, and their tanh, one step after another"
    Settings = M2RNNSettings

    def __init__(self, settings: M2RNNSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, heads, size = signature.input_size, settings.hidden_size, settings.heads, settings.head_size

        def drawn(fan_in: int, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(*shape), fan_in, generator))

        self.input_weight = drawn(m, settings.channels, m)
        taps = settings.convolution
        self.convolution_weight = None if taps is None else drawn(taps, taps, settings.channels)
        self.forget_weight = drawn(m, heads, m)
        self.forget_rate, self.forget_bias = drawn_decays(heads, generator)
        self.transition = nn.Parameter(torch.eye(size).repeat(heads, 1, 1))
        self.feedthrough = nn.Parameter(torch.ones(n))
        self.gate_weight = drawn(m, n, m)
        self.norm_weight = nn.Parameter(torch.ones(n))
        self.mixing_weight = drawn(n, n, n)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        settings, reads = self.settings, self.signature.readout != "last"
        heads, size = settings.heads, settings.keys
        memory, before = state[0].split((settings.memory, self.features - settings.memory), dim=-1)
        x, last = project(inputs, self.input_weight), before  # which has no features without a convolution
        if (taps := self.convolution_weight) is None:
            x = silu(x)
        else:
            earlier, last = carried_inputs(before, x, len(taps))
            x = short_convolution(x, taps, earlier)
        query, key, value = x.split((size, size, settings.hidden_size), dim=-1)
        selected = [*((query,) if reads else ()), key]
        weight = torch.cat((self.forget(inputs), *(each.repeat(1, 1, heads) for each in selected)), dim=-1)
        y, (memory,) = nonlinear_memory(value, weight, (memory,), trace, self.transition, heads, size, reads)
        if not reads:
            inputs, value = inputs[-1:], value[-1:]
            y = read_memory(query[-1, :, None].expand(-1, heads, -1), memory)[None]
        y = (y + self.feedthrough * value) * silu(project(inputs, self.gate_weight))
        o = project(head_norm(y, self.norm_weight, _NORM_EPSILON), self.mixing_weight)
        return o, (torch.cat((memory, last), dim=-1),)

    def forget(self, inputs: Tensor) -> Tensor:
        """Return f `[T, B, heads]`."""
        step = softplus(project(inputs, self.forget_weight) + self.forget_bias)
        return (-self.forget_rate.exp() * step).exp()

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return the matrix of all heads, which maps rows of H as columns."""
        return {"W": spread_heads(self.transition.mT.flatten(0, 1), self.settings.heads)}
