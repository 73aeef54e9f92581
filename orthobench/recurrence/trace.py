"""Gradient norms through time, taken from the backward pass that trains."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class GradientTrace:
    """Filled by the backward pass of a recurrence that was given it.

    `norms[state]` is `[time, batch]`: the Euclidean norm, for every sample, of the total derivative of the loss by
    that state at every step (dL/dh_t through the output at t and through all later steps).
    """

    def __init__(self) -> None:
        self.norms: dict[str, Tensor] = {}

    def frobenius(self, state: str = "h") -> Tensor:
        """||dL/dh_t||_F over the whole batch, `[time]`."""
        return self.norms[state].square().sum(-1).sqrt()

    def watch(self, state: str, steps: Sequence[Tensor]) -> None:
        """Record the gradient that autograd accumulates in each of these `[batch, n]` tensors, one per step."""
        norms = steps[0].new_zeros(len(steps), steps[0].shape[0])
        self.norms[state] = norms

        def record(gradient: Tensor, t: int) -> None:
            norms[t] = torch.linalg.vector_norm(gradient, dim=-1)

        for t, step in enumerate(steps):
            if step.requires_grad:
                step.register_hook(lambda gradient, t=t: record(gradient, t))


def expected_norms(trace: GradientTrace | None, x: Tensor, *states: str) -> tuple[Tensor, ...]:
    """For each state the tensor `[T, B]` in the trace that a backward pass fills; none without a trace.

    x: the inputs `[T, B, *]`.
    """
    if trace is None:
        return ()
    for state in states:
        trace.norms[state] = x.new_zeros(x.shape[:2])
    return tuple(trace.norms[state] for state in states)
