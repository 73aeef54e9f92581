"""LRU, the linear recurrent unit: a complex diagonal recurrence inside a residual block.

    e_t = E x_t + b_e,   v_t = LayerNorm(e_t)
    s_t = lambda o s_{t-1} + exp(g) o (B v_t),   lambda = exp(-exp(nu) + i exp(theta))
    u_t = gelu(Re(C s_t) + D o v_t),   o_t = e_t + (P u_t + b_p) o sigmoid(Q u_t + b_q)

A. Orvieto, S. L. Smith, A. Gu, A. Fernando, C. Gulcehre, R. Pascanu, S. De, "Resurrecting Recurrent Neural Networks for
Long Sequences", ICML 2023. The n complex units start with |lambda| uniform in area on the ring [r_min, r_max] and
angles uniform in (0, theta_max). The gain g starts so that white noise keeps its power: exp(g)^2 = 1 - |lambda|^2. B ~
N(0, 1 / 2d) and C ~ N(0, 1 / n) in each part, D ~ N(0, 1). B and the parameters of lambda and exp(g) train more slowly.

The paper stacks several such blocks, averages over time if a task has a single answer, and uses batch normalisation,
dropout and weight decay. To be comparable with the other models, the default is one recurrent layer: one block with
layer normalisation, read at the last step, without dropout or decay. Dense weights start as N(0, 1 / inputs), their
biases at 0.

With `block=residual` the cell is the bare recurrence y_t = Re(C s_t) + D o v_t inside the block of all models
(`orthobench.model.stack`). `layers=6`, `block_norm=batch` and `dropout=0.1` give the published stack.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from orthobench.model import Learns, Model, ModelSettings, SecondAxis, Signature, State
from orthobench.recurrence import GradientTrace, gated_sum, layer_norm, project, skip_gelu

from ._lru import DiagonalLRU, LRUSettings, ResidualLRU, normal


class LRU(DiagonalLRU):
    version = 1
    title = "LRU"
    paper = "Orvieto et al. Resurrecting Recurrent Neural Networks for Long Sequences. ICML 2023"
    cites = "orvieto2023"
    look = "dot square"
    family = "linear"
    learns = Learns("adding", 0.2, gate={"block_size": 32, "train_size": 30_000})
    cost = "two products per step at d = n (B has 2n rows of d), and a normalisation"
    second_axis = SecondAxis(
        ({"block_size": 16}, {"block": "residual", "block_size": 16}),
        "the paper's block, and the one of all models; the width leaves most of a small model's parameters to the cell",
    )
    Settings = LRUSettings

    def __init__(self, settings: LRUSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        m, d = signature.input_size, settings.block_size
        self.encoder_weight = normal(d, m, variance=1 / m, generator=generator)
        self.encoder_bias = nn.Parameter(torch.zeros(d))
        self.norm_weight, self.norm_bias = nn.Parameter(torch.ones(d)), nn.Parameter(torch.zeros(d))
        self.start_recurrence(settings, d, generator)
        self.gate_weight = normal(2 * d, d, variance=1 / d, generator=generator)
        self.gate_bias = nn.Parameter(torch.zeros(2 * d))

    @classmethod
    def layer_class(cls, settings: ModelSettings) -> type[Model]:
        return cls if settings.block is None else ResidualLRU

    def encode(self, inputs: Tensor) -> tuple[Tensor, Tensor]:
        """Return e and v `[T, B, d]`."""
        e = project(inputs, self.encoder_weight, self.encoder_bias)
        return e, layer_norm(e, self.norm_weight, self.norm_bias)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        e, v = self.encode(inputs)
        s, final = self.recur(v, state, trace)
        if self.signature.readout == "last":  # e[-1:] would make autograd write zeros of the size of e
            (e, v), s = self.encode(inputs[-1:]), final[None]
        u = skip_gelu(project(s, self.state_weight), self.feedthrough, v)
        return gated_sum(e, project(u, self.gate_weight, self.gate_bias)), (final,)
