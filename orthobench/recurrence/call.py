"""One call of a recurrence, and the result that a back end returns for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.declaration import Declaration, State
from orthobench.recurrence.trace import GradientTrace

Multiply = Callable[[Tensor], Tensor]
"""A function that maps rows h `[B, n]` to h W^T `[B, n]`."""

Weight = Tensor | Multiply

Result = tuple[Tensor, State]
"""The first state at every step, `[T, B, n]`, and the final state, tensors `[B, n]`."""


@dataclass(frozen=True)
class Projection:
    """The inputs x_t = U u_t + b of a recurrence; a back end may compute them step by step, without storing all of x.

    Attributes:
        inputs: u `[T, B, m]`.
        weight: U `[gates * n, m]`.
        bias: b `[gates * n]` or None.
    """

    inputs: Tensor
    weight: Tensor
    bias: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return torch.Size((*self.inputs.shape[:-1], self.weight.shape[0]))

    @property
    def dtype(self) -> torch.dtype:
        return self.inputs.dtype

    @property
    def device(self) -> torch.device:
        return self.inputs.device

    @property
    def is_cuda(self) -> bool:
        return self.inputs.is_cuda

    def dim(self) -> int:
        return self.inputs.dim()


@dataclass(frozen=True)
class Convolution:
    """The inputs x of a recurrence, if they are a short convolution (see `short_convolution`).

    A back end may compute them a few steps at a time, so that x is never stored whole.

    Attributes:
        source: the convolution's input, `[T, B, n]`.
        weight: `[taps, n]`.
        before: the source before the first step, `[taps - 1, B, n]`.
        bias: `[n]` or None.
    """

    source: Tensor | Projection
    weight: Tensor
    before: Tensor
    bias: Tensor | None = None

    @property
    def shape(self) -> torch.Size:
        return self.source.shape

    @property
    def dtype(self) -> torch.dtype:
        return self.source.dtype

    @property
    def device(self) -> torch.device:
        return self.source.device

    @property
    def is_cuda(self) -> bool:
        return self.source.is_cuda

    def dim(self) -> int:
        return self.source.dim()


Inputs = Tensor | Projection | Convolution
"""The inputs of a recurrence, or what they are computed from."""


@dataclass(frozen=True)
class Call:
    """A checked call of an operation.

    x is `[T, B, gates * n]`, the state's tensors are `[B, n]`, and `parameters` has every parameter by name.
    """

    operation: Declaration
    x: Inputs
    weight: Weight
    state: State
    parameters: Mapping[str, Any]
    trace: GradientTrace | None = None

    @property
    def is_mapped(self) -> bool:
        """Whether the weight is a matrix that maps x to the weights of all steps."""
        return self.operation.widths is not None and isinstance(self.weight, Tensor) and self.weight.dim() == 2
