"""The plain recurrence h_t = act(W h_{t-1} + U x_t; b) of most of the papers' models; they differ in W."""

from __future__ import annotations

from abc import abstractmethod

import torch
from pydantic import Field
from torch import Tensor, nn

from orthobench.model import Model, ModelSettings, OptimizerName, ParameterGroup, Positive, Signature, State
from orthobench.recurrence import (
    Activation,
    GradientTrace,
    Multiply,
    Projection,
    SparseLayers,
    recurrence,
    sparse_recurrence,
)
from orthobench.recurrence.plain_tensors import is_on_gpu

FORMED_ON_GPU = 6144
"""Up to this number of features W is always computed once per iteration on a GPU, whatever is faster on a CPU.

There a step with W is a launch, and one with its factors about 50, with its gradient. For uRNN with 2170 units W took a
tenth of the time of its factors on an H100. The limit itself is an estimate: 50 launches last as long as the products
of 50 rows with a W of 6144 features.
"""

APPLIED_ABOVE, LEAST_RATIO = 128, 5
"""With more features than this, and this many times more than numbers that each of them reads, applying sparse layers
takes less time than W with the CPU kernels. They then take a tenth of it up to nine tenths (50 rows, AVX-512)."""


def is_worth_applying(layers: SparseLayers) -> bool:
    """Return whether sparse layers take less time on a CPU than their product W `[n, n]`."""
    taps, n = layers.shape
    return n > APPLIED_ABOVE and LEAST_RATIO * taps * (2 if layers.is_complex else 1) <= n


class MatrixSettings(ModelSettings):
    """Settings of models that train the parameters of W with a separate optimiser."""

    recurrent_optimizer: OptimizerName = Field(
        "rmsprop_tf1", description="optimiser of the parameters from which W is computed"
    )
    recurrent_learning_rate: Positive = Field(1e-4, description="learning rate of the parameters of W")


class PlainRNN(Model):
    """A model whose method `weight` computes the recurrent matrix once per iteration.

    If its settings are `MatrixSettings`, their recurrent optimiser trains the `matrix_parameters`.

    A subclass sets `activation`. If its paper initialises them differently, it also overwrites `input_weight` (U, `[n,
    m]`, here U(-0.01, 0.01)) and `bias` (b, here 0).

    Attributes:
        layers: the sparse layers whose product is W, or None.
        forms_weight: false if applying W in every step with `layers` or `multiplier` is cheaper on a CPU than
            computing W.
        start: a parameter `[n]`, if h_0 is trained.
    """

    matrix_methods = ("weight", "layer_weight", "multiplier")
    bounded_parts = {"h": "W"}
    activation: Activation
    layers: SparseLayers | None = None
    forms_weight = True
    fixed_weight: Tensor | None

    def __init__(self, settings: ModelSettings, signature: Signature, generator: torch.Generator) -> None:
        super().__init__(settings, signature, generator)
        self.input_weight = nn.Parameter(torch.empty(self.features, signature.input_size))
        nn.init.uniform_(self.input_weight, -0.01, 0.01, generator=generator)
        self.bias = nn.Parameter(torch.zeros(self.features))
        self.start: nn.Parameter | None = None
        self.register_buffer("fixed_weight", None)
        if isinstance(settings, MatrixSettings):
            self.recurrent_optimizer = settings.recurrent_optimizer
            self.recurrent_learning_rate = settings.recurrent_learning_rate

    @abstractmethod
    def weight(self) -> Tensor:
        """Return W `[n, n]` as a differentiable function of its parameters."""

    def layer_weight(self) -> Tensor:
        """Return the numbers of `layers`, the weight of `sparse_recurrence`."""
        raise NotImplementedError

    def multiplier(self) -> Multiply:
        """Return the function that maps rows h `[B, n]` to h W^T using W's structure; called once per iteration."""
        raise NotImplementedError

    def initial_state(self, batch_size: int) -> State:
        if self.start is None:
            return super().initial_state(batch_size)
        return (self.start.expand(batch_size, -1),)

    def states(self, inputs: Tensor, state: State, trace: GradientTrace | None) -> tuple[Tensor, State]:
        return self._recur(inputs, state, trace, self.bias)

    def _recur(self, inputs: Tensor, state: State, trace: GradientTrace | None, bias: Tensor) -> tuple[Tensor, State]:
        x, matrix = Projection(inputs, self.input_weight), self._matrix()
        if matrix is None and self.layers is not None:
            return sparse_recurrence(x, self.layer_weight(), state, trace, self.layers, self.activation, bias)
        applied = self.multiplier() if matrix is None else matrix
        return recurrence(x, applied, state, trace, self.activation, bias)

    def _matrix(self) -> Tensor | None:
        """Return W, or None if its `layers` or the `multiplier` is applied instead."""
        if self.fixed_weight is not None:
            return self.fixed_weight
        on_gpu = self.features <= FORMED_ON_GPU and is_on_gpu(self.input_weight)
        return self.weight() if self.forms_weight or on_gpu else None

    def fix_weights(self) -> None:
        self.fixed_weight = self.weight().contiguous()

    def parameter_groups(self) -> list[ParameterGroup]:
        if not hasattr(self, "recurrent_optimizer"):
            return super().parameter_groups()
        named = dict(self.named_parameters())
        matrix = [named.pop(name) for name in self.matrix_parameters]
        return [
            ParameterGroup(list(named.values()), self.optimizer, self.learning_rate),
            ParameterGroup(matrix, self.recurrent_optimizer, self.recurrent_learning_rate),
        ]

    def recurrent_matrices(self) -> dict[str, Tensor]:
        return {"W": self.weight()}
