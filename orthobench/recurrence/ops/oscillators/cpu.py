"""The C kernel of `oscillators`: calls of `oscillators.c`, in float32.

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
from orthobench.recurrence.ops.oscillators import oscillators


@kernel(oscillators, "cpu")
class Oscillators(Kernel):
    """The kernel of `oscillators`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        y, z = runtime.take(*x.shape), runtime.take(*x.shape)
        run_blocks("oscillators_forward", y, y=y, z=z, **_shared(x, arguments))
        return (y, z), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y, z), (x,) = tape.states, tape.saved
        assert x is not None
        dx, (dy0, dz0) = runtime.take(*y.shape), map(torch.zeros_like, arguments.state)
        dweight = y.new_zeros(y.shape[1], len(arguments.weight))
        dy, dz = (runtime.take(*y.shape) if tape.norms else None for _ in range(2))
        run_blocks(
            "oscillators_backward",
            y,
            **{"y": y, "z": z, "grad_y": tape.gradient, "y_last": tape.final[0], "z_last": tape.final[1]},
            **{"dx": dx, "dweight": dweight, "dy0": dy0, "dz0": dz0, "dy": dy, "dz": dz},
            **_shared(x, arguments),
        )
        record_norms(tape, [dy, dz])
        return Gradients(dx, native.total(dweight), (dy0, dz0))


def _shared(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return what both functions take."""
    y0, z0 = arguments.state
    return {"x": x, "weight": arguments.weight, "y0": y0, "z0": z0}
