"""LSTM and GRU on CUDA: kernels of one step each.

cuDNN's cannot serve. Their input projection cannot be left out, and they do not return the cell states of all steps.
They also hide the gradients that a `GradientTrace` records.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.launch import (
    first_gradient,
    loss_gradient,
    of_each_run,
    record,
    reset_weight_gradient,
    step_launch,
    weight_gradient,
)
from orthobench.recurrence.kernels import Arguments, Gradients, Tape


class LSTM:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (h0, c0) = arguments.weight, arguments.state
        steps, (batch, n) = x.shape[-3], h0.shape[-2:]
        h, c, gates = x.new_empty(*x.shape[:-1], n), x.new_empty(*x.shape[:-1], n), torch.empty_like(x)
        kernel, constants = step_launch("lstm_forward", x, batch, n, gates=4)
        for t in range(steps):
            h_previous, c_previous, t_other, slabs = (h, c, t - 1, steps) if t else (h0, c0, 0, 1)
            kernel(x, weight, h_previous, c_previous, h, c, gates, t, t_other, steps, slabs, batch, **constants)
        return (h, c), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0, c0), (h, c), (gates,) = arguments.weight, arguments.state, tape.states, tape.saved
        assert gates is not None
        (final, grad_h), grad_c = loss_gradient(tape), tape.last(1)
        steps, batch, n = h.shape[-3:]
        dx, dc0 = torch.empty_like(gates), torch.empty_like(c0)
        traced = bool(tape.norms)
        total_h, total_c = (torch.empty_like(h), torch.empty_like(c)) if traced else (dx, dx)
        m = weight.mT.contiguous()
        kernel, constants = step_launch("lstm_backward", h, batch, n)
        constants |= {"TRACE": traced, "FINAL": final}
        for t in reversed(range(steps)):
            c_previous, t_previous, slabs = (c, t - 1, steps) if t else (c0, 0, 1)
            kernel(
                grad_h, grad_c, m, gates, c, c_previous, dx, dc0, total_h, total_c,
                t, min(t + 1, steps - 1), t_previous, steps, slabs, batch, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        for norms, total in zip(tape.norms, (total_h, total_c), strict=False):
            record(norms, total)
        return Gradients(dx, weight_gradient(dx, h, h0), (first_gradient(dx, weight), dc0))


class _ResetAfter:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        weight, (h0,), bias = arguments.weight, arguments.state, arguments.parameters["candidate_bias"]
        steps, (batch, n) = x.shape[-3], h0.shape[-2:]
        b = h0.new_zeros(*h0.shape[:-2], n) if bias is None else bias
        states, gates = x.new_empty(*x.shape[:-1], n), x.new_empty(*x.shape[:-1], 4 * n)
        kernel, constants = step_launch("gru_forward", x, batch, n, gates=4)
        for t in range(steps):
            previous, t_other, slabs = (states, t - 1, steps) if t else (h0, 0, 1)
            kernel(x, weight, previous, b, states, gates, t, t_other, steps, slabs, batch, **constants)
        return (states,), (gates,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (states,), (gates,) = arguments.weight, arguments.state, tape.states, tape.saved
        final, grad = loss_gradient(tape)
        steps, batch, n = states.shape[-3:]
        dx, d_mixed = (states.new_empty(*states.shape[:-1], 3 * n) for _ in range(2))
        carry = torch.empty_like(h0)
        traced = bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        m = weight.mT.contiguous()
        kernel, constants = step_launch("gru_backward", states, batch, n)
        constants |= {"TRACE": traced, "FINAL": final}
        for t in reversed(range(steps)):
            previous, t_previous, slabs = (states, t - 1, steps) if t else (h0, 0, 1)
            kernel(
                grad, m, gates, previous, dx, d_mixed, carry, total,
                t, min(t + 1, steps - 1), t_previous, steps, slabs, batch, LAST=t == steps - 1, **constants,
            )  # fmt: skip
        for norms in tape.norms:
            record(norms, total)
        has_bias = arguments.parameters["candidate_bias"] is not None
        db = of_each_run(_candidate_bias_gradient, h0, d_mixed) if has_bias else None
        dh0 = first_gradient(d_mixed, weight, carry)
        return Gradients(dx, weight_gradient(d_mixed, states, h0), (dh0,), {"candidate_bias": db})


def _candidate_bias_gradient(h0: Tensor, d_mixed: Tensor) -> Tensor:
    return d_mixed[..., 2 * h0.shape[-1] :].sum((0, 1))


class _ResetBefore:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        weight, (h0,) = arguments.weight, arguments.state
        steps, (batch, n) = x.shape[-3], h0.shape[-2:]
        states, reset = (x.new_empty(*x.shape[:-1], n) for _ in range(2))
        gates = torch.empty_like(x)
        candidate_weight = weight[..., 2 * n :, :].clone(memory_format=torch.contiguous_format)  # at an aligned address
        first, first_constants = step_launch("gru_gates_forward", x, batch, n, gates=4)
        second, second_constants = step_launch("gru_candidate_forward", x, batch, n)
        for t in range(steps):
            previous, t_other, slabs = (states, t - 1, steps) if t else (h0, 0, 1)
            times = (t, t_other, steps, slabs)
            first(x, weight, previous, gates, reset, *times, batch, **first_constants)
            second(x, candidate_weight, previous, gates, reset, states, *times, batch, **second_constants)
        return (states,), (reset, gates)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (states,), (reset, gates) = arguments.weight, arguments.state, tape.states, tape.saved
        assert reset is not None
        assert gates is not None
        final, grad = loss_gradient(tape)
        steps, batch, n = states.shape[-3:]
        dx, carry = torch.empty_like(gates), torch.empty_like(h0)
        traced = bool(tape.norms)
        total = torch.empty_like(states) if traced else dx
        m_gates, m_candidate = (part.mT.contiguous() for part in weight.split((2 * n, n), -2))
        first, first_constants = step_launch("gru_candidate_backward", states, batch, n)
        first_constants |= {"TRACE": traced, "FINAL": final}
        second, second_constants = step_launch("gru_gates_backward", states, batch, n)
        for t in reversed(range(steps)):
            previous, t_previous, slabs = (states, t - 1, steps) if t else (h0, 0, 1)
            first(
                grad, m_gates, gates, previous, dx, carry, total,
                t, min(t + 1, steps - 1), t_previous, steps, slabs, batch, LAST=t == steps - 1, **first_constants,
            )  # fmt: skip
            second(m_candidate, gates, previous, dx, carry, t, t_previous, steps, slabs, batch, **second_constants)
        for norms in tape.norms:
            record(norms, total)
        dw = reset_weight_gradient(dx, states, h0, reset)
        return Gradients(dx, dw, (first_gradient(dx[..., : 2 * n], weight[..., : 2 * n, :], carry),))


class GRU:
    """Both forms: with the reset gate after the product, and before it."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        return _form(arguments).forward(x, arguments)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        return _form(arguments).backward(arguments, tape)


def _form(arguments: Arguments) -> type[_ResetAfter] | type[_ResetBefore]:
    return _ResetAfter if arguments.parameters["reset_after"] else _ResetBefore
