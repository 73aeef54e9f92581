"""The CUDA kernels of the recurrences with one state: the cells of `plain.cuh`, or Triton's kernels."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import MODRELU, TANH, Activation, Call, Declaration, Kind
from orthobench.recurrence.cuda.launch import weight_gradient
from orthobench.recurrence.cuda.persistent import Cells, OptionalTensors, PersistentKernel
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.plain import gated_recurrence, lipschitz, recurrence, triton

_SIZES = (60, 116, 170, 232, 360)
_HEADER = "ops/plain/plain.cuh"


@functools.cache
def _cells(activation: Activation, step_size: float | None) -> Cells:
    parameter = activation.slope if activation.kind is Kind.LEAKY_RELU else activation.epsilon
    options = f"<{activation.kind.name}, {'false' if step_size is None else 'true'}>"
    return Cells.of(_HEADER, "Plain", (step_size or 0.0, parameter), options)


@kernel(recurrence, "cuda")
class Recurrence(PersistentKernel):
    other = triton.Recurrence
    vectors = ("bias",)
    unsupported = staticmethod(triton.Recurrence.unsupported)

    @staticmethod
    def examples(operation: Declaration, call: Callable[..., Call]) -> list[Call]:
        sizes = (*_SIZES, 1030)
        return [*(call(n, MODRELU, torch.empty(n)) for n in sizes), *(call(n, TANH) for n in sizes)]

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _cells(parameters["activation"], parameters["step_size"])

    @staticmethod
    def saves(parameters: Mapping[str, Any]) -> bool:
        return parameters["activation"].is_complex or parameters["step_size"] is not None

    @classmethod
    def vector_tensors(cls, parameters: Mapping[str, Any]) -> OptionalTensors:
        """Return the bias of every real column; the two columns of a complex unit share one entry."""
        bias: Tensor | None = parameters["bias"]
        is_shared = bias is not None and parameters["activation"].is_complex
        return [bias.repeat_interleave(2) if is_shared and bias is not None else bias]

    @staticmethod
    def total(arguments: Arguments, sums: Tensor) -> Tensor:
        return (sums[:, ::2] if arguments.parameters["activation"].is_complex else sums).sum(0)


@kernel(gated_recurrence, "cuda")
class Gated(PersistentKernel):
    other = triton.Recurrence

    @staticmethod
    def examples(operation: Declaration, call: Callable[..., Call]) -> list[Call]:
        return [call(n, 0.1) for n in _SIZES]

    @staticmethod
    @functools.cache
    def _cells(step_size: float) -> Cells:
        return Cells.of(_HEADER, "Gated", (step_size,))

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return Gated._cells(parameters["step_size"])

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        assert more is not None
        return weight_gradient(more, h, arguments.state[0])


@kernel(lipschitz, "cuda")
class Lipschitz(PersistentKernel):
    @staticmethod
    def examples(operation: Declaration, call: Callable[..., Call]) -> list[Call]:
        return [call(n, 0.1) for n in (128, 256)]

    @staticmethod
    @functools.cache
    def _cells(step_size: float) -> Cells:
        return Cells.of(_HEADER, "Lipschitz", (step_size,))

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return Lipschitz._cells(parameters["step_size"])

    @staticmethod
    def weight_gradient(dx: Tensor, more: Tensor | None, h: Tensor, arguments: Arguments, saved: Tensor) -> Tensor:
        (h0,) = arguments.state
        assert more is not None
        return torch.cat((weight_gradient(more, h, h0), weight_gradient(dx, h, h0)))
