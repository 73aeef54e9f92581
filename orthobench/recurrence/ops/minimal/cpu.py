"""The C kernel of `min_gru` and `min_lstm`: the cells of `minimal.c`, in float32."""

from __future__ import annotations

from orthobench.recurrence.cpu.blocks import UnitsKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.minimal import min_gru, min_lstm


@kernel(min_gru, "cpu")
@kernel(min_lstm, "cpu")
class Minimal(UnitsKernel):
    name = "minimal"

    @classmethod
    def variant(cls, x_width: int, arguments: Arguments) -> int:
        gates = x_width // arguments.state[0].shape[-1]
        return 2 * (gates - 2) + bool(arguments.parameters["positive"])
