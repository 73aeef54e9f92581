"""The recurrence with W given by what it does: for a structure that is cheaper to apply than to form (FFTs, rotations).

A loop in PyTorch, differentiated by autograd. Its states are kept; what happens inside a step is made again, a piece of
the sequence at a time, in the backward pass, since keeping it would take tens of states' memory for each step.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orthobench.recurrence.activations import Activation
from orthobench.recurrence.trace import GradientTrace

Multiply = Callable[[Tensor], Tensor]
"""The rows h W^T `[B, n]` of rows h `[B, n]`."""


def applied_recurrence(
    x: Tensor,
    multiply: Multiply,
    h0: Tensor,
    activation: Activation,
    bias: Tensor | None = None,
    trace: GradientTrace | None = None,
    last: bool = False,
) -> Tensor:
    """h_t = act(x_t + W h_{t-1}; b) over x `[T, B, n]`: all states `[T, B, n]`, or with `last` h_T `[B, n]`.

    With a trace everything is kept: each step's gradient must pass through its state.
    """

    def run(piece: Tensor, h: Tensor) -> Tensor:
        states = []
        for x_t in piece.unbind(0):
            h = activation(x_t + multiply(h), bias)
            states.append(h)
        if trace is not None:
            trace.watch("h", states)
        return torch.stack(states)

    if trace is not None or not torch.is_grad_enabled():
        states = run(x, h0)
        return states[-1] if last else states
    pieces, h = [], h0
    for piece in x.split(math.isqrt(len(x))):
        made = checkpoint(run, piece, h, use_reentrant=False)
        h = made[-1]
        pieces.append(made)
    return h if last else torch.cat(pieces)
