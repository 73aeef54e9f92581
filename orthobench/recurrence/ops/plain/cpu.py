"""The C kernel of `recurrence`: the cells of `plain.c`, in float32.

They are written by hand, because leaky ReLU and modReLU show in their output what the compiler would save, and complex
units are pairs of columns.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from orthobench.recurrence.cpu import dense
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.plain import recurrence


@kernel(recurrence, "cpu")
class Recurrence(dense.DenseKernel):
    name = "recurrence"
    vectors = ("bias",)
    reads = True
    makes = staticmethod(dense.makes)
    unsupported = staticmethod(dense.unsupported_activation)

    @classmethod
    def cell(cls, parameters: Mapping[str, Any]) -> str:
        if parameters["step_size"] is not None:
            return "euler"
        return "from_saved" if parameters["activation"].is_complex else "from_output"

    @classmethod
    def constants(cls, parameters: Mapping[str, Any]) -> tuple[float, ...]:
        activation = parameters["activation"]
        return parameters["step_size"] or 0.0, getattr(activation, activation.number)

    @classmethod
    def variant(cls, parameters: Mapping[str, Any]) -> int:
        return 2 * dense.KINDS[parameters["activation"].kind] + (parameters["step_size"] is not None)

    @classmethod
    def vector(cls, parameters: Mapping[str, Any], name: str) -> Tensor | None:
        """Return the bias of every real column."""
        bias: Tensor | None = parameters[name]
        return None if bias is None else parameters["activation"].by_column(bias)

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        gradients = super().backward(arguments, tape)
        bias = gradients.parameters.get("bias")
        if bias is not None:
            own = arguments.parameters["activation"].by_unit(bias).contiguous()
            gradients.parameters = {**gradients.parameters, "bias": own}
        return gradients
