"""The C kernel of `lstm`: the cell of `lstm.c`, in float32."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orthobench.recurrence.cpu import dense
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.lstm import lstm


@kernel(lstm, "cpu")
class LSTM(dense.DenseKernel):
    name = "lstm"
    makes = staticmethod(dense.makes)

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        return None if parameters["cell_weight"] is None else "the LSTM's C kernel has no cell_weight"
