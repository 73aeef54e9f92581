"""The Triton kernels of the GRU, one or two launches a step, for what the persistent kernels do not serve.

cuDNN's kernels cannot be used, because their input projection cannot be left out and they hide the gradients that a
`GradientTrace` records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import Kind
from orthobench.recurrence.cuda.launch import (
    TritonKernel,
    loss_gradient,
    record,
    step_launch,
    weight_gradient,
)
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.gru import gru


class _ResetAfter:
    @staticmethod
    def forward(x: Tensor, arguments: Arguments) -> Any:
        weight, (h0,), bias = arguments.weight, arguments.state, arguments.parameters["candidate_bias"]
        steps, (batch, n) = len(x), h0.shape
        b = h0.new_zeros(n) if bias is None else bias
        states, gates = x.new_empty(*x.shape[:-1], n), x.new_empty(*x.shape[:-1], 4 * n)
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
        dx, d_mixed = (states.new_empty(*states.shape[:-1], 3 * n) for _ in range(2))
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
        steps, (batch, n) = len(x), h0.shape
        states, reset = (x.new_empty(*x.shape[:-1], n) for _ in range(2))
        gates = torch.empty_like(x)
        candidate_weight = weight[2 * n :].clone(memory_format=torch.contiguous_format)  # at an aligned address
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
        m_gates, m_candidate = (part.T.contiguous() for part in weight.split((2 * n, n)))
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
        by_candidate = dx[..., 2 * n :].flatten(0, 1).T @ reset.flatten(0, 1)
        dweight = torch.cat((weight_gradient(dx[..., : 2 * n], states, h0), by_candidate))
        return Gradients(dx, dweight, (torch.addmm(carry, dx[0, :, : 2 * n], weight[: 2 * n]),))


@kernel(gru, "triton")
class GRU(TritonKernel):
    """Both variants: with the reset gate after the product, and before it."""

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        kind = parameters["activation"].kind
        return None if kind is Kind.TANH else f"the GRU kernels' candidate is tanh's, not {kind}'s"

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        return _form(arguments).forward(x, arguments)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        return _form(arguments).backward(arguments, tape)


def _form(arguments: Arguments) -> type[_ResetAfter] | type[_ResetBefore]:
    return _ResetAfter if arguments.parameters["reset_after"] else _ResetBefore
