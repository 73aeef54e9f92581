"""The C kernel of `lem`: the cell of `lem.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orthobench.recurrence.cpu import dense
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.lem import lem


@kernel(lem, "cpu")
class LEM(dense.DenseKernel):
    name = "lem"
    makes = staticmethod(dense.makes)

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        return (parameters["step_size"],)
