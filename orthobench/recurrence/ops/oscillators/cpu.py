"""The C kernel of `oscillators`: the cell of `oscillators.c`, in float32."""

from __future__ import annotations

from orthobench.recurrence.cpu.blocks import UnitsKernel
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.oscillators import oscillators


@kernel(oscillators, "cpu")
class Oscillators(UnitsKernel):
    name = "oscillators"
