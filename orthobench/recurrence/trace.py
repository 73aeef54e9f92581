"""Gradient norms through time, recorded during a backward pass."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


class GradientTrace:
    """The norms of a loss's gradients with respect to the states of a recurrence.

    The backward pass of a recurrence that received the trace fills it. `norms[state]` is `[time, batch]`: for every
    sample the Euclidean norm of the total derivative dL/ds_t, through the output at t and through all later steps.

    With `of_sum`, `sums[state]` is `[time]`: the norm of their sum over the batch. Kernels do not compute this sum, so
    the reference runs the recurrence, and no run's record of back ends names it.
    """

    def __init__(self, of_sum: bool = False) -> None:
        self.of_sum = of_sum
        self.norms: dict[str, Tensor] = {}
        self.sums: dict[str, Tensor] = {}

    def frobenius(self, state: str = "h") -> Tensor:
        """Return ||dL/dh_t||_F over the whole batch, `[time]`."""
        return self.norms[state].square().sum(-1).sqrt()

    def expect(self, x: Tensor, states: Sequence[str]) -> tuple[Tensor, ...]:
        """Return, for each state, a tensor of zeros `[T, B]` that a backward pass fills; x is `[T, B, *]`."""
        for state in states:
            self.norms[state] = x.new_zeros(x.shape[:2], dtype=x.dtype.to_real())
        return tuple(self.norms[state] for state in states)

    def watch(self, state: str, steps: Sequence[Tensor]) -> None:
        """Record the gradient that autograd accumulates in each of these tensors `[batch, n]`, one for each step."""
        first = steps[0]
        norms = first.new_zeros(len(steps), len(first), dtype=first.dtype.to_real())
        self.norms[state] = norms
        sums = norms.new_zeros(len(steps))
        if self.of_sum:
            self.sums[state] = sums

        def record(gradient: Tensor, t: int) -> None:
            norms[t] = torch.linalg.vector_norm(gradient, dim=-1)
            if self.of_sum:
                sums[t] = torch.linalg.vector_norm(gradient.sum(0))

        for t, step in enumerate(steps):
            if step.requires_grad:
                step.register_hook(lambda gradient, t=t: record(gradient, t))
