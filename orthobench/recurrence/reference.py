"""What the recurrences mean: plain PyTorch, differentiated by autograd, in any float type, on any device.

Every back end is held against these functions in value and in gradient. Time is the first axis; the input
projections (with their biases) are made before the loop, in one product.
"""

from __future__ import annotations

import torch
from torch import Tensor

from orthobench.recurrence.activations import Activation
from orthobench.recurrence.trace import GradientTrace


def recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    activation: Activation,
    bias: Tensor | None,
    step_size: float | None,
    trace: GradientTrace | None,
) -> Tensor:
    h, states = h0, []
    for x_t in x.unbind(0):  # x[t] instead would make autograd write a zero [time, batch, n] tensor per step
        update = activation(torch.addmm(x_t, h, weight.T), bias)
        h = update if step_size is None else h + step_size * update
        states.append(h)
    if trace is not None:
        trace.watch("h", states)
    return torch.stack(states)


def gated_recurrence(x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None) -> Tensor:
    h, states = h0, []
    for x_t in x.unbind(0):
        candidate, gate = x_t.chunk(2, dim=-1)
        mixed = h @ weight.T
        h = h + step_size * (mixed + gate).sigmoid() * (mixed + candidate).tanh()
        states.append(h)
    if trace is not None:
        trace.watch("h", states)
    return torch.stack(states)


def lstm(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    c0: Tensor,
    trace: GradientTrace | None,
    cell_weight: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    h, c, hs, cs = h0, c0, [], []
    for x_t in x.unbind(0):
        i, f, g, o = torch.addmm(x_t, h, weight.T).chunk(4, dim=-1)
        c = f.sigmoid() * c + i.sigmoid() * g.tanh()
        if cell_weight is not None:
            o = torch.addmm(o, c, cell_weight.T)
        h = o.sigmoid() * c.tanh()
        hs.append(h)
        cs.append(c)
    if trace is not None:
        trace.watch("h", hs)
        trace.watch("c", cs)
    return torch.stack(hs), torch.stack(cs)


def gru(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    candidate_bias: Tensor | None,
    reset_after: bool,
    activation: Activation,
    activation_bias: Tensor | None,
    trace: GradientTrace | None,
) -> Tensor:
    n = h0.shape[-1]
    gates_weight, candidate_weight = weight[: 2 * n].T, weight[2 * n :].T
    h, states = h0, []
    for x_t in x.unbind(0):
        r, z = torch.addmm(x_t[:, : 2 * n], h, gates_weight).sigmoid().chunk(2, dim=-1)
        if reset_after:
            recurrent = h @ candidate_weight
            mixed = r * (recurrent if candidate_bias is None else recurrent + candidate_bias)
        else:
            mixed = (r * h) @ candidate_weight
        h = z * h + (1 - z) * activation(x_t[:, 2 * n :] + mixed, activation_bias)
        states.append(h)
    if trace is not None:
        trace.watch("h", states)
    return torch.stack(states)


def cornn(
    x: Tensor,
    weight: Tensor,
    y0: Tensor,
    z0: Tensor,
    step_size: float,
    frequency: float,
    damping: float,
    trace: GradientTrace | None,
) -> tuple[Tensor, Tensor]:
    y, z, ys, zs = y0, z0, [], []
    for x_t in x.unbind(0):
        force = torch.addmm(x_t, torch.cat((y, z), dim=-1), weight.T).tanh()
        z = z + step_size * (force - frequency * y - damping * z)
        y = y + step_size * z
        ys.append(y)
        zs.append(z)
    if trace is not None:
        trace.watch("h", ys)
        trace.watch("z", zs)
    return torch.stack(ys), torch.stack(zs)


def lem(
    x: Tensor, weight: Tensor, y0: Tensor, z0: Tensor, step_size: float, trace: GradientTrace | None
) -> tuple[Tensor, Tensor]:
    n = y0.shape[-1]
    from_y, from_z = weight[: 3 * n].T, weight[3 * n :].T
    y, z, ys, zs = y0, z0, [], []
    for x_t in x.unbind(0):
        gate_z, candidate_z, gate_y = torch.addmm(x_t[:, : 3 * n], y, from_y).chunk(3, dim=-1)
        length_z, length_y = step_size * gate_z.sigmoid(), step_size * gate_y.sigmoid()
        z = (1 - length_z) * z + length_z * candidate_z.tanh()
        y = (1 - length_y) * y + length_y * torch.addmm(x_t[:, 3 * n :], z, from_z).tanh()
        ys.append(y)
        zs.append(z)
    if trace is not None:
        trace.watch("h", ys)
        trace.watch("z", zs)
    return torch.stack(ys), torch.stack(zs)


def lipschitz(x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None) -> Tensor:
    h, states = h0, []
    for x_t in x.unbind(0):
        linear, mixed = (h @ weight.T).chunk(2, dim=-1)
        h = h + step_size * (linear + (mixed + x_t).tanh())
        states.append(h)
    if trace is not None:
        trace.watch("h", states)
    return torch.stack(states)
