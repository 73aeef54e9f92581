"""Jacobians of a model's step and of its whole course, for any model, back end and number of state tensors.

The joint state s_t is all tensors that the model carries from step to step, side by side: for an LSTM [h_t, c_t].
Every row of a Jacobian is a sequence of its own in one batch, so that one forward and one backward pass make many rows.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from orthobench.model import Model, State

ROWS = 1 << 16
"""Steps of all sequences in one batch, about: it bounds the memory."""


def start(model: Model, batch_size: int) -> State:
    """The model's own start, apart from what it is made of."""
    return tuple(part.detach() for part in model.initial_state(batch_size))


def advance(model: Model, inputs: Tensor, state: State) -> State:
    """The state after inputs `[T, B, m]`, T possibly 0."""
    if not len(inputs):
        return state
    with torch.no_grad():
        after: State = model(inputs, state)[1]
    return after


def state_jacobian(model: Model, inputs: Tensor, state: State) -> Tensor:
    """ds_T / ds_0, `[B, N, N]`, where s_0 is `state`, tensors `[B, n]`, and s_T follows inputs x `[T, B, m]`."""
    pieces = [torch.autograd.grad(total, before)[0] for total, before, _ in _rows(model, inputs, state)]
    return torch.cat([piece.unflatten(0, (inputs.shape[1], -1)) for piece in pieces], dim=1)


def step_jacobians(model: Model, x: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """ds_1 / ds_0 `[B, N, N]` and ds_1 / dx_1 `[B, N, m]` of the step from `state`, tensors `[B, n]`, by x `[B, m]`."""
    found = []
    for total, before, inputs in _rows(model, x.unsqueeze(0), state):
        by_state, by_input = torch.autograd.grad(total, (before, inputs))
        found.append([part.unflatten(0, (len(x), -1)) for part in (by_state, by_input[0])])
    by_state, by_input = (torch.cat(pieces, dim=1) for pieces in zip(*found, strict=True))
    return by_state, by_input


def _rows(model: Model, inputs: Tensor, state: State) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """For some components of s_T at a time: their sum over sequences that end in one each, and the leaves of these.

    Those of every sample are copies of it: leaves s_0 `[B R, N]` and inputs `[T, B R, m]` for R components.
    """
    steps, batch, _ = inputs.shape
    sizes = [part.shape[-1] for part in state]
    joint = torch.cat(state, dim=-1).detach()
    for components in torch.arange(sum(sizes), device=inputs.device).split(max(16, ROWS // (steps * batch))):
        copies = len(components)
        before, x = (rows.detach().repeat_interleave(copies, dim=-2).requires_grad_() for rows in (joint, inputs))
        after = torch.cat(model(x, before.split(sizes, dim=-1))[1], dim=-1).unflatten(0, (batch, copies))
        yield after[:, torch.arange(copies), components].sum(), before, x
