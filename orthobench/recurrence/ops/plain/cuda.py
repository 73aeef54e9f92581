"""The CUDA kernel of the plain recurrence: the cell of `plain.cuh`, or Triton's kernels."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from orthobench.recurrence import kernel_case
from orthobench.recurrence.call import Activation
from orthobench.recurrence.cuda.persistent import Cells, OptionalTensors, PersistentKernel
from orthobench.recurrence.kernel_case import single
from orthobench.recurrence.kernels import Arguments, kernel
from orthobench.recurrence.ops.plain import recurrence, triton


@functools.cache
def _cells(activation: Activation, step_size: float | None) -> Cells:
    parameter = getattr(activation, activation.number)
    options = f"<{activation.kind.name}, {'false' if step_size is None else 'true'}>"
    return Cells.of("ops/plain/plain.cuh", "Plain", (step_size or 0.0, parameter), options)


@kernel(recurrence, "cuda")
class Recurrence(PersistentKernel):
    other = triton.Recurrence
    vectors = ("bias",)
    unsupported = staticmethod(triton.Recurrence.unsupported)

    @staticmethod
    def problem(parameters: Mapping[str, Any], n: int, batch: int, steps: int) -> list[Tensor]:
        """Return tensors whose x gives pre-activations that stay away from the activation's kinks.

        A unit that crosses a kink would have a different gradient, however small the kernel's error is.
        """
        _, weight, start, *_ = kernel_case.problem(recurrence, parameters, n, batch, steps)
        generator = np.random.RandomState(10)
        vectors = [value for value in parameters.values() if isinstance(value, Tensor)]
        drawn = [single(torch.from_numpy(-0.5 + 0.04 * generator.rand(len(vector)))) for vector in vectors]
        step = recurrence.step(weight, **{**parameters, **({"bias": drawn[0]} if drawn else {})})
        h, x = start, []
        for _ in range(steps):
            x.append(single(_pre_activations(batch, n, parameters["activation"], generator) - h @ weight.T))
            (h,) = step(x[-1], h)
        return [torch.stack(x), weight, start, *drawn]

    @staticmethod
    def cells(parameters: Mapping[str, Any]) -> Cells:
        return _cells(parameters["activation"], parameters["step_size"])

    @staticmethod
    def saves(parameters: Mapping[str, Any]) -> bool:
        return parameters["activation"].is_complex or parameters["step_size"] is not None

    @classmethod
    def vector_tensors(cls, parameters: Mapping[str, Any]) -> OptionalTensors:
        """Return the bias of every real column."""
        bias: Tensor | None = parameters["bias"]
        return [None if bias is None else parameters["activation"].by_column(bias)]

    @staticmethod
    def total(arguments: Arguments, sums: Tensor) -> Tensor:
        own: Tensor = arguments.parameters["activation"].by_unit(sums)
        return own.sum(0)


def _pre_activations(batch: int, n: int, activation: Activation, generator: np.random.RandomState) -> Tensor:
    """Return z `[B, n]` with magnitudes of 0.1 to 0.4 or 0.6 to 1.2, because the kinks are at 0 and near 0.5."""
    pairs = n // 2 if activation.is_complex else n
    size = torch.from_numpy(generator.uniform(0.1, 0.4, (batch, pairs)))
    large = torch.from_numpy(generator.uniform(0.6, 1.2, (batch, pairs)))
    size = torch.where(torch.from_numpy(generator.rand(batch, pairs) < 0.6), large, size)
    if not activation.is_complex:
        return size * torch.from_numpy(generator.choice([-1.0, 1.0], (batch, n)))
    phase = torch.from_numpy(generator.uniform(0, 2 * np.pi, (batch, pairs)))
    return torch.stack((size * phase.cos(), size * phase.sin()), dim=-1).flatten(1)
