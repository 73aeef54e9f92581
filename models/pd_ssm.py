"""PD-SSM: complex units whose transition is a one-hot matrix times a diagonal one, both chosen by the input.

    h_t = d_t o (P_t h_{t-1}) + B x_t,   o_t = C [Re h_t; Im h_t] + c
    M_t = sum_k s_k A_k,   s = softmax(S x_t)
    d_t = sigmoid(f(x_t)) exp(2 pi i sigmoid(g(x_t)))

Row j of P_t has its only 1 where row j of M_t is largest. Its gradient is that of the softmax of each row of M_t.
f and g have one hidden layer of 2n features with GELU. The state starts as (1, 0, ..., 0). A product of such matrices
is one again, so n states of an automaton fit into n units. A. Terzić, N. Menet, M. Hersche, T. Hofmann, A. Rahimi,
"Structured Sparse Transition Matrices to Enable State Tracking in State-Space Models", NeurIPS 2025.

P_t and d_t are computed once for each different input, of which symbols and pixels have few.

The program (`state_tracking_PyTorch/models/pdssm.py`) has one 1 in each row and multiplies by d_t from the left, as
here. The paper has one in each column and multiplies from the right (D-66). A_k starts as N(0, 1 / n), both parts of B
as N(0, 1 / 2n), other maps as torch's Linear. The program adds D o x_t to o_t and normalises the sum, which a block
does here (`block=post_norm`).
"""

from __future__ import annotations

import math

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import gelu

from orthobench.matrices.initial import torch_linear_
from orthobench.model import Count, Learns, Model, ModelSettings, OptimizerName, Signature, State
from orthobench.recurrence import GradientTrace, Projection, distinct_inputs, one_hot_recurrence, project


class PDSSMSettings(ModelSettings):
    optimizer: OptimizerName = "adam"
    dictionary_size: Count = Field(8, description="number of matrices A_k from which a step's transition is chosen")


class PDSSM(Model):
    version = 1
    title = "PD-SSM"
    paper = "Terzić et al. Structured Sparse Transition Matrices to Enable State Tracking in State-Space Models. 2025"
    cites = "terzic2025"
    look = "longdashdot square-open"
    family = "linear"
    learns = Learns("adding", 0.5)
    step_matrices = ()
    cost = "M_t has n^2 entries of 8 terms for every different input, whose softmax the gradient needs"
    Settings = PDSSMSettings

    def __init__(self, settings: PDSSMSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.settings = settings
        m, n, count = signature.input_size, settings.hidden_size, settings.dictionary_size

        def linear(inputs: int, *shape: int) -> nn.Parameter:
            return nn.Parameter(torch_linear_(torch.empty(*shape), inputs, generator))

        def normal(variance: float, *shape: int) -> nn.Parameter:
            return nn.Parameter(math.sqrt(variance) * torch.randn(*shape, generator=generator))

        self.selection_weight = linear(m, count, m)
        self.dictionary = normal(1 / n, count, n, n)
        self.inner_weight, self.inner_bias = linear(m, 4 * n, m), linear(m, 4 * n)  # of f, then of g
        self.size_weight, self.size_bias = linear(2 * n, n, 2 * n), linear(2 * n, n)
        self.phase_weight, self.phase_bias = linear(2 * n, n, 2 * n), linear(2 * n, n)
        self.input_weight = normal(1 / (2 * n), 2 * n, m)  # rows 2j and 2j+1 are complex unit j
        self.state_weight, self.state_bias = linear(2 * n, n, 2 * n), linear(2 * n, n)

    @classmethod
    def state_features(cls, settings: ModelSettings) -> int:
        return 2 * settings.hidden_size

    @classmethod
    def output_features(cls, settings: ModelSettings) -> int:
        return settings.hidden_size

    def initial_state(self, batch_size: int) -> State:
        (start,) = super().initial_state(batch_size)
        return (torch.cat((torch.ones_like(start[:, :1]), start[:, 1:]), dim=-1),)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        distinct, places = distinct_inputs(inputs)
        x, transitions = Projection(inputs, self.input_weight), self.transitions(distinct)
        h, (final,) = one_hot_recurrence(x, places, state, trace, self.dictionary, transitions)
        read = final[None] if self.signature.readout == "last" else h
        return project(read, self.state_weight, self.state_bias), (final,)

    def transitions(self, inputs: Tensor) -> Tensor:
        """Return s and d of each input `[U, 1, m]`, `[U, dictionary_size + 2n]`, the parts of d next to each other."""
        sizes, phases = gelu(project(inputs, self.inner_weight, self.inner_bias)).chunk(2, dim=-1)
        size = project(sizes, self.size_weight, self.size_bias).sigmoid()
        phase = 2 * math.pi * project(phases, self.phase_weight, self.phase_bias).sigmoid()
        factors = torch.stack((size * phase.cos(), size * phase.sin()), dim=-1).flatten(-2)
        return torch.cat((project(inputs, self.selection_weight).softmax(-1), factors), dim=-1)[:, 0]

    def readout(self, outputs: Tensor, final: State) -> Tensor:
        return outputs[-1] if self.signature.readout == "last" else outputs

    def recurrent_matrices(self) -> dict[str, Tensor]:
        """Return no matrix, because the matrices of a step depend on the inputs."""
        return {}
