"""The CUDA kernel of LEM: the cell of `lem.cuh`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.launch import weight_gradient
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.lem import lem


@functools.cache
def _cells(step_size: float) -> Cells:
    return Cells.of("ops/lem/lem.cuh", "Lem", (step_size, 1 / step_size))


@kernel(lem, "cuda")
class LEM(PersistentKernel):
    states = 2

    @staticmethod
    def unsupported(parameters: Mapping[str, Any]) -> str | None:
        return None if parameters["step_size"] else "LEM's kernel divides by the step size, which is 0"

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _cells(parameters["step_size"])

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        """The first three blocks multiply y_{t-1}, and the last multiplies z_t, which is saved last."""
        n = h.shape[-1]
        from_y = weight_gradient(dx[..., : 3 * n], h, arguments.state[0])
        return torch.cat((from_y, dx[..., 3 * n :].flatten(0, 1).T @ saved[..., 6 * n :].flatten(0, 1)))
