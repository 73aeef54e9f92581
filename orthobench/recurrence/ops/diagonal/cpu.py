"""The C kernel of `diagonal_recurrence`: calls of `diagonal.c`, in float32.

It is bound by memory and computes little, so each direction is one pass over the states. The features of all batch rows
are split over the threads, which does not change results.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import workspace
from orthobench.recurrence.cpu import call_c, matrix_products
from orthobench.recurrence.cpu.blocks import record_norms, run_blocks
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.diagonal import diagonal_recurrence


@kernel(diagonal_recurrence, "cpu")
class Scan(Kernel):
    """The kernel of `diagonal_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = workspace.take(*x.shape)
        run_blocks("scan_forward", h, x=x, h0=arguments.state[0], latest=_latest(h), h=h, **_shared(arguments))
        return (h,), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,) = arguments.weight, arguments.state, tape.states
        per_step = weight.dim() == 3
        dx, dh0, da = workspace.take(*h.shape), torch.empty_like(h0), None
        if tape.needs_weight:
            da = workspace.take(*h.shape) if per_step else torch.zeros_like(h0)
        tensors = {"h0": h0, "h": h, "grad_h": tape.gradient, "grad_last": tape.final[0], "latest": _latest(h)}
        run_blocks("scan_backward", h, **tensors, dx=dx, da=da, dh0=dh0, **_shared(arguments))
        record_norms(tape, [dx])
        return Gradients(dx, da if per_step or da is None else call_c.total(da), (dh0,))


def _latest(h: Tensor) -> Tensor:
    """Return memory for the last step's result, in blocks of whole vectors."""
    return h.new_empty(h.shape[1], matrix_products.padded(h.shape[2]))


def _shared(arguments: Arguments) -> dict[str, Any]:
    """Return what both functions take."""
    weight = arguments.weight
    return {"is_complex": arguments.parameters["is_complex"], "per_step": weight.dim() == 3, "a": weight}
