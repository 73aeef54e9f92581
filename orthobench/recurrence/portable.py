"""The recurrences in plain PyTorch with a hand-written backward pass: for machines without a C compiler, and for what
the kernels of a device do not serve.

Unlike in `reference` no graph of the loop is built: forward keeps the states and what they do not give back, backward
is one product per step, and dL/dW is one product over all steps. Works in every float type and on every device.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.autograd.function import once_differentiable

from orthobench.recurrence.activations import Activation, Kind
from orthobench.recurrence.trace import GradientTrace, expected_norms


def unsupported(op: str, x: Tensor, weight: Tensor, activation: Activation | None = None) -> str | None:
    """Why this back end cannot serve the call: it always can."""
    return None


def recurrence(
    x: Tensor,
    weight: Tensor,
    h0: Tensor,
    activation: Activation,
    bias: Tensor | None,
    step_size: float | None,
    trace: GradientTrace | None,
) -> Tensor:
    result: Tensor = _Recurrence.apply(x, weight, h0, bias, activation, step_size, expected_norms(trace, x, "h"))
    return result


def gated_recurrence(x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None) -> Tensor:
    result: Tensor = _Gated.apply(x, weight, h0, step_size, expected_norms(trace, x, "h"))
    return result


def lstm(x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, trace: GradientTrace | None) -> tuple[Tensor, Tensor]:
    h, c = _LSTM.apply(x, weight, h0, c0, expected_norms(trace, x, "h", "c"))
    return h, c


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
    norms = expected_norms(trace, x, "h")
    result: Tensor = _GRU.apply(x, weight, h0, candidate_bias, reset_after, activation, activation_bias, norms)
    return result


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
    y, z = _CoRNN.apply(x, weight, y0, z0, step_size, frequency, damping, expected_norms(trace, x, "h", "z"))
    return y, z


def lem(
    x: Tensor, weight: Tensor, y0: Tensor, z0: Tensor, step_size: float, trace: GradientTrace | None
) -> tuple[Tensor, Tensor]:
    y, z = _LEM.apply(x, weight, y0, z0, step_size, expected_norms(trace, x, "h", "z"))
    return y, z


def lipschitz(x: Tensor, weight: Tensor, h0: Tensor, step_size: float, trace: GradientTrace | None) -> Tensor:
    result: Tensor = _Lipschitz.apply(x, weight, h0, step_size, expected_norms(trace, x, "h"))
    return result


class _Recurrence(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        h0: Tensor,
        bias: Tensor | None,
        activation: Activation,
        step_size: float | None,
        norms: tuple[Tensor, ...],
    ) -> Tensor:
        states, h = x.new_empty(*x.shape), h0
        keeps_input = _needs_input(activation)
        kept = x.new_empty(*x.shape) if keeps_input or step_size is not None else None
        for t, x_t in enumerate(x.unbind(0)):
            z = torch.addmm(x_t, h, weight.T)
            update = activation(z, bias)
            if kept is not None:
                kept[t] = z if keeps_input else update
            h = states[t].copy_(update if step_size is None else h + step_size * update)
        ctx.activation, ctx.step_size, ctx.norms = activation, step_size, norms
        ctx.save_for_backward(weight, h0, bias, states, kept)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, h0, bias, states, kept = ctx.saved_tensors
        saved, step_size = states if kept is None else kept, ctx.step_size
        carry, dz = torch.zeros_like(h0), torch.empty_like(states)
        differentiate = _complex_derivative if ctx.activation.is_complex else _derivative
        dbias = None if bias is None else torch.zeros_like(bias)
        for t, g in _backwards(grad):
            total = g + carry
            _record(ctx.norms, t, total)
            update = total if step_size is None else step_size * total
            dz[t], by_bias = differentiate(ctx.activation, update, saved[t], bias)
            if dbias is not None:
                dbias += by_bias.sum(0)
            carry = dz[t] @ weight if step_size is None else torch.addmm(total, dz[t], weight)
        return dz, _weight_gradient(dz, states, h0), carry, dbias, None, None, None


class _Gated(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, step_size: float, norms: tuple[Tensor, ...]) -> Tensor:
        n, h = h0.shape[-1], h0
        states, saved = x.new_empty(*x.shape[:2], n), torch.empty_like(x)
        for x_t, state, kept in zip(x.unbind(0), states.unbind(0), saved.unbind(0), strict=True):
            mixed = h @ weight.T
            candidate = torch.tanh(mixed + x_t[:, :n], out=kept[:, :n])
            gate = torch.sigmoid(mixed + x_t[:, n:], out=kept[:, n:])
            h = state.copy_(h + step_size * gate * candidate)
        ctx.step_size, ctx.norms = step_size, norms
        ctx.save_for_backward(weight, h0, states, saved)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, h0, states, saved = ctx.saved_tensors
        n = h0.shape[-1]
        candidate, gate = saved[..., :n], saved[..., n:]
        slopes = (ctx.step_size * gate * (1 - candidate**2), ctx.step_size * candidate * gate * (1 - gate))
        total, dx = torch.zeros_like(h0), torch.empty_like(saved)
        for t, g in _backwards(grad):
            total = total + g
            _record(ctx.norms, t, total)
            dx[t, :, :n] = total * slopes[0][t]
            dx[t, :, n:] = total * slopes[1][t]
            total = total + (dx[t, :, :n] + dx[t, :, n:]) @ weight
        dweight = _weight_gradient(dx[..., :n] + dx[..., n:], states, h0)
        return dx, dweight, total, None, None


class _LSTM(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, norms: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        n, h, c = h0.shape[-1], h0, c0
        hs, cs, gates = x.new_empty(*x.shape[:2], n), x.new_empty(*x.shape[:2], n), torch.empty_like(x)
        for t, x_t in enumerate(x.unbind(0)):
            z = torch.addmm(x_t, h, weight.T)
            i, f, o = (torch.sigmoid(z[:, k * n : k * n + n]) for k in (0, 1, 3))
            g = torch.tanh(z[:, 2 * n : 3 * n])
            torch.cat((i, f, g, o), dim=-1, out=gates[t])
            c = cs[t].copy_(f * c + i * g)
            h = hs[t].copy_(o * c.tanh())
        ctx.norms = norms
        ctx.save_for_backward(weight, h0, c0, hs, cs, gates)
        return hs, cs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_c: Tensor) -> Any:
        weight, h0, c0, hs, cs, gates = ctx.saved_tensors
        dh, dc, dx = torch.zeros_like(h0), torch.zeros_like(c0), torch.empty_like(gates)
        grads_c = grad_c.unbind(0)
        for t, g_h in _backwards(grad_h):
            i, f, g, o = gates[t].chunk(4, dim=-1)
            squashed = cs[t].tanh()
            dh = dh + g_h
            dc = dc + grads_c[t] + dh * o * (1 - squashed**2)
            _record(ctx.norms, t, dh, dc)
            before = cs[t - 1] if t else c0
            parts = (dc * g * i * (1 - i), dc * before * f * (1 - f), dc * i * (1 - g**2), dh * squashed * o * (1 - o))
            torch.cat(parts, dim=-1, out=dx[t])
            dh, dc = dx[t] @ weight, dc * f
        return dx, _weight_gradient(dx, hs, h0), dh, dc, None


class _GRU(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        h0: Tensor,
        candidate_bias: Tensor | None,
        reset_after: bool,
        activation: Activation,
        activation_bias: Tensor | None,
        norms: tuple[Tensor, ...],
    ) -> Tensor:
        n, h = h0.shape[-1], h0
        states, recurrent, gates = (x.new_empty(*x.shape[:2], width) for width in (n, n, 3 * n))
        for t, x_t in enumerate(x.unbind(0)):
            r, z = torch.addmm(x_t[:, : 2 * n], h, weight[: 2 * n].T).sigmoid().chunk(2, dim=-1)
            if reset_after:
                kept = h @ weight[2 * n :].T
                kept = kept if candidate_bias is None else kept + candidate_bias
                mixed = r * kept
            else:
                kept = r * h
                mixed = kept @ weight[2 * n :].T
            g = activation(x_t[:, 2 * n :] + mixed, activation_bias)
            torch.cat((r, z, g), dim=-1, out=gates[t])
            recurrent[t] = kept
            h = states[t].copy_(z * h + (1 - z) * g)
        ctx.reset_after, ctx.activation, ctx.norms = reset_after, activation, norms
        ctx.save_for_backward(weight, h0, candidate_bias, activation_bias, states, recurrent, gates)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, h0, candidate_bias, activation_bias, states, recurrent, gates = ctx.saved_tensors
        n = h0.shape[-1]
        gate_weight, candidate_weight = weight[: 2 * n], weight[2 * n :]
        total, dx = torch.zeros_like(h0), torch.empty_like(gates)
        dmixed = torch.empty_like(recurrent)  # derivative by the product with the candidate's weight
        dactivation_bias = None if activation_bias is None else torch.zeros_like(activation_bias)
        for t, g_t in _backwards(grad):
            total = total + g_t
            _record(ctx.norms, t, total)
            r, z, g = gates[t].chunk(3, dim=-1)
            before = states[t - 1] if t else h0
            dcandidate, by_bias = _derivative(ctx.activation, total * (1 - z), g, activation_bias)
            if dactivation_bias is not None:
                dactivation_bias += by_bias.sum(0)
            dz = total * (before - g) * z * (1 - z)
            dmixed[t] = dcandidate * r if ctx.reset_after else dcandidate
            through = dmixed[t] @ candidate_weight
            dr = (dcandidate * recurrent[t] if ctx.reset_after else through * before) * r * (1 - r)
            torch.cat((dr, dz, dcandidate), dim=-1, out=dx[t])
            total = total * z + (through if ctx.reset_after else through * r) + dx[t, :, : 2 * n] @ gate_weight
        into_candidate = (
            _weight_gradient(dmixed, states, h0) if ctx.reset_after else _weight_gradient(dmixed, recurrent, None)
        )
        dweight = torch.cat((_weight_gradient(dx[..., : 2 * n], states, h0), into_candidate))
        dcandidate_bias = None if candidate_bias is None else dmixed.sum((0, 1))
        return dx, dweight, total, dcandidate_bias, None, None, dactivation_bias, None


class _CoRNN(Function):
    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        weight: Tensor,
        y0: Tensor,
        z0: Tensor,
        step_size: float,
        frequency: float,
        damping: float,
        norms: tuple[Tensor, ...],
    ) -> tuple[Tensor, Tensor]:
        y, z = y0, z0
        ys, zs, forces = (x.new_empty(*x.shape) for _ in range(3))
        for t, x_t in enumerate(x.unbind(0)):
            force = torch.tanh(torch.addmm(x_t, torch.cat((y, z), dim=-1), weight.T), out=forces[t])
            z = zs[t].copy_(z + step_size * (force - frequency * y - damping * z))
            y = ys[t].copy_(y + step_size * z)
        ctx.step_size, ctx.frequency, ctx.damping, ctx.norms = step_size, frequency, damping, norms
        ctx.save_for_backward(weight, y0, z0, ys, zs, forces)
        return ys, zs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_z: Tensor) -> Any:
        weight, y0, z0, ys, zs, forces = ctx.saved_tensors
        n, step_size = y0.shape[-1], ctx.step_size
        slopes = step_size * (1 - forces**2)
        dy, dz, dx = torch.zeros_like(y0), torch.zeros_like(z0), torch.empty_like(forces)
        grads_z = grad_z.unbind(0)
        for t, g_y in _backwards(grad_y):
            dy = dy + g_y
            dz = dz + grads_z[t] + step_size * dy
            _record(ctx.norms, t, dy, dz)
            through = torch.mul(dz, slopes[t], out=dx[t]) @ weight
            dy = dy - step_size * ctx.frequency * dz + through[:, :n]
            dz = (1 - step_size * ctx.damping) * dz + through[:, n:]
        dweight = torch.cat((_weight_gradient(dx, ys, y0), _weight_gradient(dx, zs, z0)), dim=1)
        return dx, dweight, dy, dz, None, None, None, None


class _LEM(Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, y0: Tensor, z0: Tensor, step_size: float, norms: tuple[Tensor, ...]
    ) -> tuple[Tensor, Tensor]:
        n, y, z = y0.shape[-1], y0, z0
        ys, zs, saved = x.new_empty(*x.shape[:2], n), x.new_empty(*x.shape[:2], n), torch.empty_like(x)
        for t, x_t in enumerate(x.unbind(0)):
            mixed = torch.addmm(x_t[:, : 3 * n], y, weight[: 3 * n].T)
            gate_z, gate_y = torch.sigmoid(mixed[:, :n]), torch.sigmoid(mixed[:, 2 * n :])
            candidate_z = torch.tanh(mixed[:, n : 2 * n])
            z = zs[t].copy_(z + step_size * gate_z * (candidate_z - z))
            candidate_y = torch.tanh(torch.addmm(x_t[:, 3 * n :], z, weight[3 * n :].T))
            y = ys[t].copy_(y + step_size * gate_y * (candidate_y - y))
            torch.cat((gate_z, candidate_z, gate_y, candidate_y), dim=-1, out=saved[t])
        ctx.step_size, ctx.norms = step_size, norms
        ctx.save_for_backward(weight, y0, z0, ys, zs, saved)
        return ys, zs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_y: Tensor, grad_z: Tensor) -> Any:
        weight, y0, z0, ys, zs, saved = ctx.saved_tensors
        n = y0.shape[-1]
        dy, dz, dx = torch.zeros_like(y0), torch.zeros_like(z0), torch.empty_like(saved)
        grads_z = grad_z.unbind(0)
        for t, g_y in _backwards(grad_y):
            gate_z, candidate_z, gate_y, candidate_y = saved[t].chunk(4, dim=-1)
            before_y, before_z = (ys[t - 1], zs[t - 1]) if t else (y0, z0)
            dy = dy + g_y
            by_length = ctx.step_size * gate_y * dy
            dgate_y = by_length * (candidate_y - before_y) * (1 - gate_y)
            dcandidate_y = by_length * (1 - candidate_y**2)
            dy, total = dy - by_length, dy
            dz = dz + grads_z[t] + dcandidate_y @ weight[3 * n :]
            _record(ctx.norms, t, total, dz)
            by_length = ctx.step_size * gate_z * dz
            dgate_z = by_length * (candidate_z - before_z) * (1 - gate_z)
            dcandidate_z = by_length * (1 - candidate_z**2)
            dz = dz - by_length
            torch.cat((dgate_z, dcandidate_z, dgate_y, dcandidate_y), dim=-1, out=dx[t])
            dy = torch.addmm(dy, dx[t, :, : 3 * n], weight[: 3 * n])
        dweight = torch.cat((_weight_gradient(dx[..., : 3 * n], ys, y0), _weight_gradient(dx[..., 3 * n :], zs, None)))
        return dx, dweight, dy, dz, None, None


class _Lipschitz(Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, step_size: float, norms: tuple[Tensor, ...]) -> Tensor:
        n, h = h0.shape[-1], h0
        states, saved = x.new_empty(*x.shape), x.new_empty(*x.shape)
        for t, x_t in enumerate(x.unbind(0)):
            mixed = h @ weight.T
            update = torch.tanh(mixed[:, n:] + x_t, out=saved[t])
            h = states[t].copy_(h + step_size * (mixed[:, :n] + update))
        ctx.step_size, ctx.norms = step_size, norms
        ctx.save_for_backward(weight, h0, states, saved)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> Any:
        weight, h0, states, saved = ctx.saved_tensors
        n = h0.shape[-1]
        slopes = 1 - saved**2
        total, dmixed = torch.zeros_like(h0), saved.new_empty(*saved.shape[:2], 2 * n)
        for t, g in _backwards(grad):
            total = total + g
            _record(ctx.norms, t, total)
            linear = torch.mul(total, ctx.step_size, out=dmixed[t, :, :n])
            torch.mul(linear, slopes[t], out=dmixed[t, :, n:])
            total = torch.addmm(total, dmixed[t], weight)
        return dmixed[..., n:], _weight_gradient(dmixed, states, h0), total, None, None


def _backwards(grad: Tensor) -> list[tuple[int, Tensor]]:
    return list(enumerate(grad.unbind(0)))[::-1]


def _record(norms: tuple[Tensor, ...], t: int, *gradients: Tensor) -> None:
    for norm, gradient in zip(norms, gradients, strict=False):
        norm[t] = torch.linalg.vector_norm(gradient, dim=-1)


def _weight_gradient(dz: Tensor, states: Tensor, initial: Tensor | None) -> Tensor:
    """Sum over t of dz_t^T h_{t-1}, or without an initial state of dz_t^T h_t: `[width, n]`."""
    if initial is None:
        return dz.flatten(0, 1).T @ states.flatten(0, 1)
    first = dz[0].T @ initial
    return first if len(dz) == 1 else torch.addmm(first, dz[1:].flatten(0, 1).T, states[:-1].flatten(0, 1))


def _needs_input(activation: Activation) -> bool:
    """Whether the derivative is not to be had from the activation's output."""
    return activation.is_complex or activation.kind is Kind.LEAKY_RELU


def _derivative(activation: Activation, g: Tensor, saved: Tensor, bias: Tensor | None) -> tuple[Tensor, Tensor]:
    """dL/dz and the addends of dL/db from g = dL/da, all `[B, n]`; saved: z or a, see `_needs_input`."""
    match activation.kind:
        case Kind.TANH:
            dz = torch.addcmul(g, g, saved * saved, value=-1)
        case Kind.RELU:
            dz = torch.where(saved <= 0, 0.0, g)
        case Kind.LEAKY_RELU:
            shifted = saved if bias is None else saved + bias
            dz = torch.where(shifted < 0, activation.slope * g, g)
        case Kind.MODRELU:
            dz = torch.where(saved == 0, 0.0, g)
            return dz, dz if bias is None else dz * saved.sign()
        case _:
            dz = g
    return dz, dz


def _complex_derivative(
    activation: Activation, gradient: Tensor, saved: Tensor, bias: Tensor | None
) -> tuple[Tensor, Tensor]:
    g, z = _pairs(gradient), _pairs(saved)
    squared = z.square().sum(-1)
    if activation.kind is Kind.COMPLEX_MODRELU_SMOOTH:
        zero = torch.zeros_like(squared, dtype=torch.bool)
        radius = modulus = (squared + activation.epsilon).sqrt()
        over = modulus + activation.epsilon
    else:
        zero = squared == 0
        radius = torch.where(zero, 1.0, squared).sqrt()
        over = modulus = radius + activation.epsilon
    shifted = (modulus if bias is None else modulus + bias).relu()
    active = (~(shifted <= 0)).to(z.dtype)
    scale = torch.where(zero, 0.0, shifted / over)
    along = (g * z).sum(-1)
    bend = torch.where(zero, 0.0, along * (active - scale) / (over * radius))
    dz = g * scale.unsqueeze(-1) + z * bend.unsqueeze(-1)
    return dz.flatten(-2), torch.where(zero, 0.0, along * active / over)


def _pairs(z: Tensor) -> Tensor:
    """`[..., n]` as `[..., n / 2, 2]`."""
    return z.reshape(*z.shape[:-1], -1, 2)
