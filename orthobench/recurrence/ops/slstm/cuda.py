"""The CUDA kernel of the sLSTM: the cell of `slstm.cuh`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import Call, Declaration
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.slstm import slstm

_CELLS = {
    is_exponential: Cells.of("ops/slstm/slstm.cuh", "Slstm", (), f"<{option}>", backward="", scatters=True)
    for is_exponential, option in ((False, "false"), (True, "true"))
}


@kernel(slstm, "cuda")
class SLSTM(PersistentKernel):
    states = 4

    @staticmethod
    def examples(operation: Declaration, call: Callable[..., Call]) -> list[Call]:
        return [call(n, is_exponential, 4) for n in (128, 256) for is_exponential in (False, True)]

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _CELLS[parameters["exponential_forget"]]

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        """Multiply within the heads: the weight is `[4, heads, d, d]`, and dx `[T, B, 4, heads, d]`."""
        h0, heads = arguments.state[0], arguments.parameters["heads"]
        size = h.shape[-1] // heads
        gradient = h.new_empty(4, heads, size, size)
        first = h0.view(-1, heads, size).transpose(0, 1)
        others = h[:-1].reshape(-1, heads, size).transpose(0, 1)
        for gate, each in zip(gradient, dx.view(-1, 4, heads, size).unbind(1), strict=True):
            by_head = each.permute(1, 2, 0)  # [heads, d, T B]
            torch.bmm(by_head[..., : len(h0)], first, out=gate)
            if len(h) > 1:
                gate.baddbmm_(by_head[..., len(h0) :], others)
        return gradient.view(arguments.weight.shape)
