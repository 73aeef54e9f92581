"""The Triton kernel of the LSTM, a launch for each step, for what the persistent kernels do not serve.

cuDNN's kernel cannot be used, because its input projection cannot be left out and it does not return the cell states of
all steps. It also hides the gradients that a `GradientTrace` records.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.launch import TritonKernel, loss_gradient, record, step_launch, weight_gradient
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.lstm import lstm


@kernel(lstm, "triton")
class LSTM(TritonKernel):
    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        return None if parameters["cell_weight"] is None else "the LSTM kernels have no cell_weight"

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        weight, (h0, c0) = arguments.weight, arguments.state
        steps, (batch, n) = len(x), h0.shape
        h, c, gates = x.new_empty(*x.shape[:-1], n), x.new_empty(*x.shape[:-1], n), torch.empty_like(x)
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
