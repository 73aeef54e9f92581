"""LSTM and GRU on CUDA: step kernels under autograd.

cuDNN's are no alternative: their input projection cannot be left out, they do not return the cell states of all steps,
and they hide the gradients that a `GradientTrace` records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from orthobench.recurrence.cuda_launch import record, register, step_launch, weight_gradient
from orthobench.recurrence.trace import GradientTrace


class LSTM(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, c0: Tensor, trace: GradientTrace | None
    ) -> tuple[Tensor, Tensor]:
        x, weight, h0, c0 = x.contiguous(), weight.contiguous(), h0.contiguous(), c0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        h, c, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, n), torch.empty_like(x)
        kernel, constants = step_launch("lstm_forward", x, batch, n, gates=4)
        for t in range(steps):
            h_previous, c_previous, t_other = (h, c, t - 1) if t else (h0, c0, 0)
            kernel(x, weight, h_previous, c_previous, h, c, gates, t, t_other, batch, **constants)
        ctx.save_for_backward(weight, h0, c0, h, c, gates)
        ctx.norms = register(trace, "h", h), register(trace, "c", c)
        return h, c

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad_h: Tensor, grad_c: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, c0, h, c, gates = ctx.saved_tensors
        grad_h, grad_c = grad_h.contiguous(), grad_c.contiguous()
        steps, batch, n = h.shape
        dx, dc0 = torch.empty_like(gates), torch.empty_like(c0)
        traced = ctx.norms[0] is not None
        total_h, total_c = (torch.empty_like(h), torch.empty_like(c)) if traced else (dx, dx)
        m = weight.T.contiguous()
        kernel, constants = step_launch("lstm_backward", h, batch, n)
        for t in reversed(range(steps)):
            c_previous, t_previous = (c, t - 1) if t else (c0, 0)
            kernel(
                grad_h, grad_c, m, gates, c, c_previous, dx, dc0, total_h, total_c,
                t, min(t + 1, steps - 1), t_previous, batch, TRACE=traced, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        record(ctx.norms[0], total_h)
        record(ctx.norms[1], total_c)
        return dx, weight_gradient(dx, h, h0), dx[0] @ weight, dc0, None


class GRU(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, bias: Tensor | None, trace: GradientTrace | None
    ) -> Tensor:
        x, weight, h0 = x.contiguous(), weight.contiguous(), h0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        b = x.new_zeros(n) if bias is None else bias.contiguous()
        states, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, 4 * n)
        kernel, constants = step_launch("gru_forward", x, batch, n, gates=4)
        for t in range(steps):
            previous, t_other = (states, t - 1) if t else (h0, 0)
            kernel(x, weight, previous, b, states, gates, t, t_other, batch, **constants)
        ctx.save_for_backward(weight, h0, states, gates)
        ctx.has_bias, ctx.norms = bias is not None, register(trace, "h", states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, states, gates = ctx.saved_tensors
        grad = grad.contiguous()
        steps, batch, n = states.shape
        dx, d_mixed = states.new_empty(steps, batch, 3 * n), states.new_empty(steps, batch, 3 * n)
        carry = torch.empty_like(h0)
        traced = ctx.norms is not None
        total = torch.empty_like(states) if traced else dx
        m = weight.T.contiguous()
        kernel, constants = step_launch("gru_backward", states, batch, n)
        for t in reversed(range(steps)):
            previous, t_previous = (states, t - 1) if t else (h0, 0)
            kernel(
                grad, m, gates, previous, dx, d_mixed, carry, total,
                t, min(t + 1, steps - 1), t_previous, batch, TRACE=traced, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        record(ctx.norms, total)
        db = d_mixed[..., 2 * n :].sum((0, 1)) if ctx.has_bias else None
        return dx, weight_gradient(d_mixed, states, h0), torch.addmm(carry, d_mixed[0], weight), db, None


class GRUResetBefore(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, h0: Tensor, trace: GradientTrace | None) -> Tensor:
        x, weight, h0 = x.contiguous(), weight.contiguous(), h0.contiguous()
        steps, batch, n = x.shape[0], *h0.shape
        states, reset = x.new_empty(steps, batch, n), x.new_empty(steps, batch, n)
        gates = torch.empty_like(x)
        candidate_weight = weight[2 * n :].clone()  # at an aligned address
        first, first_constants = step_launch("gru_gates_forward", x, batch, n, gates=4)
        second, second_constants = step_launch("gru_candidate_forward", x, batch, n)
        for t in range(steps):
            previous, t_other = (states, t - 1) if t else (h0, 0)
            first(x, weight, previous, gates, reset, t, t_other, batch, **first_constants)
            second(x, candidate_weight, previous, gates, reset, states, t, t_other, batch, **second_constants)
        ctx.save_for_backward(weight, h0, states, reset, gates)
        ctx.norms = register(trace, "h", states)
        return states

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        weight, h0, states, reset, gates = ctx.saved_tensors
        grad = grad.contiguous()
        steps, batch, n = states.shape
        dx, carry = torch.empty_like(gates), torch.empty_like(h0)
        traced = ctx.norms is not None
        total = torch.empty_like(states) if traced else dx
        m_gates, m_candidate = weight[: 2 * n].T.contiguous(), weight[2 * n :].T.contiguous()
        first, constants = step_launch("gru_candidate_backward", states, batch, n)
        second, _ = step_launch("gru_gates_backward", states, batch, n)
        for t in reversed(range(steps)):
            previous, t_previous = (states, t - 1) if t else (h0, 0)
            first(
                grad, m_gates, gates, previous, dx, carry, total,
                t, min(t + 1, steps - 1), t_previous, batch, TRACE=traced, LAST=t == steps - 1, **constants,
            )  # fmt: skip
            second(m_candidate, gates, previous, dx, carry, t, t_previous, batch, **constants)
        record(ctx.norms, total)
        d_candidate = dx[..., 2 * n :].flatten(0, 1).T @ reset.flatten(0, 1)
        dw = torch.cat((weight_gradient(dx[..., : 2 * n], states, h0), d_candidate))
        return dx, dw, torch.addmm(carry, dx[0, :, : 2 * n], weight[: 2 * n]), None
