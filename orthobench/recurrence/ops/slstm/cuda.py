"""The CUDA kernel of the sLSTM: the cell of `slstm.cuh`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from orthobench.recurrence.cuda.launch import weight_gradient
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.slstm import slstm

_CELLS = {
    is_exponential: Cells.of("ops/slstm/slstm.cuh", "Slstm", (), f"<{option}>", backward="")
    for is_exponential, option in ((False, "false"), (True, "true"))
}


@kernel(slstm, "cuda")
class SLSTM(PersistentKernel):
    states = 4

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _CELLS[parameters["exponential_forget"]]

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        """Return the blocks within the heads, `[4, heads, d, d]`, of the product of all units.

        Products of single heads would be small, and each a sum over all steps that few multiprocessors share.
        """
        n, heads = h.shape[-1], arguments.parameters["heads"]
        every = weight_gradient(dx, h, arguments.state[0]).view(4, heads, n // heads, heads, n // heads)
        return every.diagonal(dim1=1, dim2=3).permute(0, 3, 1, 2).reshape(arguments.weight.shape)
