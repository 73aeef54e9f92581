"""LSTM and GRU on CUDA: kernels of one step each.

cuDNN's cannot serve. Their input projection cannot be left out, and they do not return the cell states of all steps.
They also hide the gradients that a `GradientTrace` records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda_launch import loss_gradient, record, step_launch, weight_gradient
from orthobench.recurrence.kernels import Arguments, Gradients, Tape


class LSTM:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (h0, c0) = arguments.weight, arguments.state
        steps, batch, n = x.shape[0], *h0.shape
        h, c, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, n), torch.empty_like(x)
        kernel, constants = step_launch("lstm_forward", x, batch, n, gates=4)
        for t in range(steps):
            h_previous, c_previous, t_other = (h, c, t - 1) if t else (h0, c0, 0)
            kernel(x, weight, h_previous, c_previous, h, c, gates, t, t_other, batch, **constants)
        return (h, c), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0, c0), (h, c), (gates,) = arguments.weight, arguments.state, tape.states, tape.saved
        assert gates is not None
        (final, grad_h), grad_c = loss_gradient(tape), tape.last(1)
        steps, batch, n = h.shape
        dx, dc0 = torch.empty_like(gates), torch.empty_like(c0)
        traced = bool(tape.norms)
        total_h, total_c = (torch.empty_like(h), torch.empty_like(c)) if traced else (dx, dx)
        m = weight.T.contiguous()
        kernel, constants = step_launch("lstm_backward", h, batch, n)
        constants |= {"TRACE": traced, "FINAL": final}
        for t in reversed(range(steps)):
            c_previous, t_previous = (c, t - 1) if t else (c0, 0)
            kernel(
                grad_h, grad_c, m, gates, c, c_previous, dx, dc0, total_h, total_c,
                t, min(t + 1, steps - 1), t_previous, batch, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        for norms, total in zip(tape.norms, (total_h, total_c), strict=False):
            record(norms, total)
        return Gradients(dx, weight_gradient(dx, h, h0), (dx[0] @ weight, dc0))


class GRU:
    """Both forms: the reset gate after the product, and before it."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        form = _ResetAfter if arguments.parameters["reset_after"] else _ResetBefore
        return form.forward(x, arguments)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        form = _ResetAfter if arguments.parameters["reset_after"] else _ResetBefore
        return form.backward(arguments, tape)


class _ResetAfter:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        weight, (h0,), bias = arguments.weight, arguments.state, arguments.parameters["candidate_bias"]
        steps, batch, n = x.shape[0], *h0.shape
        b = x.new_zeros(n) if bias is None else bias
        states, gates = x.new_empty(steps, batch, n), x.new_empty(steps, batch, 4 * n)
        kernel, constants = step_launch("gru_forward", x, batch, n, gates=4)
        for t in range(steps):
            previous, t_other = (states, t - 1) if t else (h0, 0)
            kernel(x, weight, previous, b, states, gates, t, t_other, batch, **constants)
        return (states,), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (states,), (gates,) = arguments.weight, arguments.state, tape.states, tape.saved
        final, grad = loss_gradient(tape)
        steps, batch, n = states.shape
        dx, d_mixed = states.new_empty(steps, batch, 3 * n), states.new_empty(steps, batch, 3 * n)
        carry = torch.empty_like(h0)
        traced = bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        m = weight.T.contiguous()
        kernel, constants = step_launch("gru_backward", states, batch, n)
        constants |= {"TRACE": traced, "FINAL": final}
        for t in reversed(range(steps)):
            previous, t_previous = (states, t - 1) if t else (h0, 0)
            kernel(
                grad, m, gates, previous, dx, d_mixed, carry, total,
                t, min(t + 1, steps - 1), t_previous, batch, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        for norms in tape.norms:
            record(norms, total)
        has_bias = arguments.parameters["candidate_bias"] is not None
        db = d_mixed[..., 2 * n :].sum((0, 1)) if has_bias else None
        dh0 = torch.addmm(carry, d_mixed[0], weight)
        return Gradients(dx, weight_gradient(d_mixed, states, h0), (dh0,), {"candidate_bias": db})


class _ResetBefore:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        weight, (h0,) = arguments.weight, arguments.state
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
        return (states,), (reset, gates)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (states,), (reset, gates) = arguments.weight, arguments.state, tape.states, tape.saved
        assert reset is not None
        assert gates is not None
        final, grad = loss_gradient(tape)
        steps, batch, n = states.shape
        dx, carry = torch.empty_like(gates), torch.empty_like(h0)
        traced = bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        m_gates, m_candidate = weight[: 2 * n].T.contiguous(), weight[2 * n :].T.contiguous()
        first, first_constants = step_launch("gru_candidate_backward", states, batch, n)
        first_constants |= {"TRACE": traced, "FINAL": final}
        second, second_constants = step_launch("gru_gates_backward", states, batch, n)
        for t in reversed(range(steps)):
            previous, t_previous = (states, t - 1) if t else (h0, 0)
            first(
                grad, m_gates, gates, previous, dx, carry, total,
                t, min(t + 1, steps - 1), t_previous, batch, LAST=t == steps - 1, **first_constants,
            )  # fmt: skip
            second(m_candidate, gates, previous, dx, carry, t, t_previous, batch, **second_constants)
        for norms in tape.norms:
            record(norms, total)
        d_candidate = dx[..., 2 * n :].flatten(0, 1).T @ reset.flatten(0, 1)
        dw = torch.cat((weight_gradient(dx[..., : 2 * n], states, h0), d_candidate))
        return Gradients(dx, dw, (torch.addmm(carry, dx[0, :, : 2 * n], weight[: 2 * n]),))
