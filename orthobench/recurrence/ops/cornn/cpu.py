"""The C kernel of `cornn`: the cell of `cornn.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orthobench.recurrence.cpu.dense import DenseKernel
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.cornn import cornn


@kernel(cornn, "cpu")
class CoRNN(DenseKernel):
    name = "cornn"
    sums_in_loop = False

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        return parameters["step_size"], parameters["frequency"], parameters["damping"]
