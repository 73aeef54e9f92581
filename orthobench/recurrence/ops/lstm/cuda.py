"""The CUDA kernels of the LSTM: the cell of `lstm.cuh`, or Triton's kernels."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import kernel
from orthobench.recurrence.ops.lstm import lstm, triton

_CELLS = Cells.of("ops/lstm/lstm.cuh", "Lstm", scatters=True)


@kernel(lstm, "cuda")
class LSTM(PersistentKernel):
    other = triton.LSTM
    states = 2
    unsupported = staticmethod(triton.LSTM.unsupported)

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _CELLS
