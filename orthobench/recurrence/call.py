"""One call of a recurrence, and what a back end returns for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from orthobench.recurrence.trace import GradientTrace

if TYPE_CHECKING:
    from orthobench.recurrence.operation import Operation

State = tuple[Tensor, ...]
"""The state that a recurrence carries from step to step: h, or h and c, each `[B, n]`."""

Multiply = Callable[[Tensor], Tensor]
"""A function that maps rows h `[B, n]` to h W^T `[B, n]`."""

Weight = Tensor | Multiply

Result = tuple[Tensor, State]
"""The first state at every step, `[T, B, n]`, and the final state, tensors `[B, n]`."""


@dataclass(frozen=True)
class Call:
    """A checked call of an operation.

    x is `[T, B, gates * n]`, the state's tensors are `[B, n]`, and `parameters` has every parameter by name.
    """

    operation: Operation[...]
    x: Tensor
    weight: Weight
    state: State
    parameters: Mapping[str, Any]
    trace: GradientTrace | None = None
