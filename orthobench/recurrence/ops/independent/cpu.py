"""The C kernel of `independent_recurrence`: the cell of `independent.c`, in float32."""

from __future__ import annotations

from orthobench.recurrence.call import Kind
from orthobench.recurrence.cpu.blocks import UnitsKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.independent import independent_recurrence

KINDS = (Kind.IDENTITY, Kind.RELU, Kind.TANH)
"""The activations, in the order of the numbers in `independent.c`."""


@kernel(independent_recurrence, "cpu")
class Independent(UnitsKernel):
    name = "independent"
    rereads = False

    @classmethod
    def variant(cls, x_width: int, arguments: Arguments) -> int:
        return 2 * KINDS.index(arguments.parameters["activation"].kind) + (arguments.weight.dim() == 3)
