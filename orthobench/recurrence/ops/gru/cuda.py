"""The CUDA kernels of the GRU: the cells of `gru.cuh`, or Triton's kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import Activation
from orthobench.recurrence.cuda.launch import weight_gradient
from orthobench.recurrence.cuda.persistent import Cells, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.gru import gru, triton


@functools.cache
def _cells(activation: Activation, reset_after: bool) -> Cells:
    options, constants = f"<{activation.kind.name}>", (0.0, activation.epsilon)
    if reset_after:
        return Cells.of("ops/gru/gru.cuh", "GruAfter", constants, options, scatters=True)
    return Cells.of("ops/gru/gru.cuh", "GruBefore", constants, options)


@kernel(gru, "cuda")
class GRU(PersistentKernel):
    """Both variants: with the reset gate after the product, and before it."""

    other = triton.GRU
    vectors = ("activation_bias", "candidate_bias")

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _cells(parameters["activation"], parameters["reset_after"])

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        (h0,), n = arguments.state, h.shape[-1]
        assert more is not None
        gates = weight_gradient(dx[..., : 2 * n], h, h0)
        if arguments.parameters["reset_after"]:
            return torch.cat((gates, weight_gradient(more, h, h0)))
        return torch.cat((gates, dx[..., 2 * n :].flatten(0, 1).T @ more.flatten(0, 1)))
