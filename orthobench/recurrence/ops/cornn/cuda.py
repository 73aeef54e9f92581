"""The CUDA kernel of coRNN: the cell of `cornn.cuh`."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cuda.launch import weight_gradient
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.cornn import cornn


@functools.cache
def _cells(*constants: float) -> Cells:
    return Cells.of("ops/cornn/cornn.cuh", "Cornn", constants)


@kernel(cornn, "cuda")
class CoRNN(PersistentKernel):
    states = 2

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _cells(parameters["step_size"], parameters["frequency"], parameters["damping"])

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        """The weight has the blocks of y and of z, whose values at all steps are saved."""
        y0, z0 = arguments.state
        z = saved[..., h.shape[-1] :]
        return torch.cat((weight_gradient(dx, h, y0), weight_gradient(dx, z, z0)), dim=1)
