"""Jacobians of one step and of a whole sequence, for any model, back end and number of state tensors.

The joint state s_t concatenates the tensors that a model carries from step to step; for an LSTM it is [h_t, c_t]. Each
row of a Jacobian becomes a separate sequence in a batch, so one forward and one backward pass compute many rows.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator

import torch
from torch import Tensor

from orthobench.model import Model, State
from orthobench.probe import ProbeContext
from orthobench.recurrence import GradientTrace
from orthobench.sequences import one_hot
from orthobench.task import Batch

ROWS = 1 << 16
"""Approximate limit of steps times sequences in one batch, to bound the memory."""


def exact(model: Model) -> Model:
    """Return a copy of the model on the CPU, in double precision."""
    return copy.deepcopy(model).cpu().double()


def first_sequence(context: ProbeContext) -> Tensor:
    """Return the valid inputs of the first sequence of the run's probe batch, `[T, 1, m]`."""
    batch = context.batch
    length = len(batch.inputs) if batch.lengths is None else int(batch.lengths[0])
    return input_numbers(batch, context.task.signature.input_size)[:length, :1]


def start(model: Model, batch_size: int) -> State:
    """Return the model's initial state, tensors `[B, n]`, detached from its parameters."""
    return tuple(part.detach() for part in model.initial_state(batch_size))


def input_numbers(batch: Batch, size: int) -> Tensor:
    """Return the inputs up to the last valid step, `[T, B, m]`; symbols become one-hot vectors of this size m."""
    inputs = batch.inputs if batch.lengths is None else batch.inputs[: int(batch.lengths.max())]
    return inputs if inputs.is_floating_point() else one_hot(inputs, size, torch.get_default_dtype())


def advance(model: Model, inputs: Tensor, state: State) -> State:
    """Return the state after inputs `[T, B, m]`; T may be 0."""
    if not len(inputs):
        return state
    with torch.no_grad():
        after: State = model.run(inputs, state)[1]
    return after


def state_jacobian(model: Model, inputs: Tensor, state: State) -> Tensor:
    """Return ds_T / ds_0, `[B, N, N]`, where s_0 is `state`, tensors `[B, n]`, and s_T follows inputs `[T, B, m]`."""
    pieces = [torch.autograd.grad(total, before)[0] for total, before, _ in _rows(model, inputs, state)]
    return torch.cat([piece.unflatten(0, (inputs.shape[1], -1)) for piece in pieces], dim=1)


def step_jacobians(model: Model, x: Tensor, state: State) -> tuple[Tensor, Tensor]:
    """Return ds_1 / ds_0 `[B, N, N]` and ds_1 / dx_1 `[B, N, m]` of one step with input x `[B, m]` from `state`."""
    pieces = []
    for total, before, inputs in _rows(model, x.unsqueeze(0), state):
        by_state, by_input = torch.autograd.grad(total, (before, inputs))
        pieces.append([part.unflatten(0, (len(x), -1)) for part in (by_state, by_input[0])])
    by_state, by_input = (torch.cat(parts, dim=1) for parts in zip(*pieces, strict=True))
    return by_state, by_input


def products(model: Model, inputs: Tensor, state: State, vectors: Tensor) -> Tensor | None:
    """Return J^T u of J = ds_T / ds_0 for each of the vectors u; None if no gradient reaches s_0.

    Torch's operations compute the steps, and no run's record of back ends names them.

    Args:
        inputs: of the T steps, `[T, B, m]`.
        state: s_0, real tensors `[B, n]`.
        vectors: `[k, N]`, where N is the sum of the n.

    Returns:
        `[B, k, N]`.
    """
    sizes, batch, copies = [part.shape[-1] for part in state], inputs.shape[1], len(vectors)
    with torch.enable_grad():
        before = torch.cat(state, dim=-1).detach().repeat_interleave(copies, dim=0).requires_grad_()
        repeated = inputs.repeat_interleave(copies, dim=1)
        after = torch.cat(model.run(repeated, before.split(sizes, dim=-1), GradientTrace(of_sum=True))[1], dim=-1)
        if not after.requires_grad:
            return None
        total = (after.unflatten(0, (batch, copies)) * vectors).sum()
        found: Tensor | None = torch.autograd.grad(total, before, allow_unused=True)[0]
    return None if found is None else found.unflatten(0, (batch, copies))


def _rows(model: Model, inputs: Tensor, state: State) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Yield, for R components of s_T at a time, a sum and its leaves; the gradients are rows of the Jacobian.

    The leaves are R copies of every sample: s_0 `[B R, N]` and inputs `[T, B R, m]`. Each copy contributes one
    component to the sum.
    """
    steps, batch, _ = inputs.shape
    sizes = [part.shape[-1] for part in state]
    joint = torch.cat(state, dim=-1).detach()
    for components in torch.arange(sum(sizes), device=inputs.device).split(max(16, ROWS // (steps * batch))):
        copies = len(components)
        before, x = (rows.detach().repeat_interleave(copies, dim=-2).requires_grad_() for rows in (joint, inputs))
        after = torch.cat(model.run(x, before.split(sizes, dim=-1))[1], dim=-1).unflatten(0, (batch, copies))
        yield after[:, torch.arange(copies), components].sum(), before, x
