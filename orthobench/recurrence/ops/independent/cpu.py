"""The CPU kernel of `independent_recurrence`: calls of `independent.c`, in float32.

It is bound by memory and computes little, like the scan.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.call import Kind
from orthobench.recurrence.cpu import native
from orthobench.recurrence.cpu.blocks import record_norms, run_blocks
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.independent import independent_recurrence

KINDS = (Kind.IDENTITY, Kind.RELU, Kind.TANH)
"""The activations, in the order of the numbers in `independent.c`."""


@kernel(independent_recurrence, "cpu")
class Independent(Kernel):
    """The kernel of `independent_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = runtime.take(*x.shape)
        run_blocks("independent_forward", h, x=x, h0=arguments.state[0], h=h, **_shared(arguments))
        return (h,), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,) = arguments.weight, arguments.state, tape.states
        per_step = weight.dim() == 3
        dx, dh0, da = runtime.take(*h.shape), torch.zeros_like(h0), None
        if tape.needs_weight:
            da = runtime.take(*h.shape) if per_step else torch.zeros_like(h0)
        dh = runtime.take(*h.shape) if tape.norms else None
        tensors = {"h0": h0, "h": h, "grad_h": tape.gradient, "grad_last": tape.final[0]}
        run_blocks("independent_backward", h, **tensors, dx=dx, da=da, dh0=dh0, dh=dh, **_shared(arguments))
        record_norms(tape, [dh])
        return Gradients(dx, da if per_step or da is None else native.total(da), (dh0,))


def _shared(arguments: Arguments) -> dict[str, Any]:
    """Return what both functions take."""
    kind, weight = KINDS.index(arguments.parameters["activation"].kind), arguments.weight
    return {"kind": kind, "per_step": weight.dim() == 3, "a": weight}
