"""The C kernel of `min_gru` and `min_lstm`: calls of `minimal.c`, in float32.

It is bound by memory and computes little, so each direction is one pass over the states.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import native
from orthobench.recurrence.cpu.blocks import record_norms, run_blocks
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.minimal import min_gru, min_lstm


@kernel(min_gru, "cpu")
@kernel(min_lstm, "cpu")
class Minimal(Kernel):
    """The kernel of `min_gru` and `min_lstm`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (h0,) = arguments.state
        h = runtime.take(*x.shape[:2], h0.shape[-1])
        run_blocks("minimal_forward", h, h0=h0, h=h, **_shared(x, arguments))
        return (h,), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (h,), (x,) = arguments.state, tape.states, tape.saved
        assert x is not None
        dx, dh0 = runtime.take(*x.shape), torch.zeros_like(h0)
        dbias = x.new_zeros(x.shape[1:])
        dh = runtime.take(*h.shape) if tape.norms else None
        tensors = {"h0": h0, "h": h, "grad_h": tape.gradient, "grad_last": tape.final[0]}
        run_blocks("minimal_backward", h, **tensors, dx=dx, dbias=dbias, dh0=dh0, dh=dh, **_shared(x, arguments))
        record_norms(tape, [dh])
        return Gradients(dx, native.total(dbias), (dh0,))


def _shared(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return what both functions take."""
    gates, positive = x.shape[-1] // arguments.state[0].shape[-1], bool(arguments.parameters["positive"])
    return {"gates": gates, "positive": positive, "x": x, "bias": arguments.weight}
