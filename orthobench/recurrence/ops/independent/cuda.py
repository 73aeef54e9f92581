"""The CUDA kernel of the recurrence of independent units: `independent.cuh`."""

from __future__ import annotations

import functools
import struct
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.call import Kind
from orthobench.recurrence.cuda import launch, nvrtc
from orthobench.recurrence.cuda.persistent import CompiledKernel
from orthobench.recurrence.kernels import Arguments, Gradients, Tape, kernel
from orthobench.recurrence.ops.independent import independent_recurrence

_THREADS = 128
_PACKED = struct.Struct("10P4i")  # the structure IndependentArguments of `independent.cuh`


@functools.cache
def _loaded(kind: Kind, direction: str, device: torch.device) -> nvrtc.Launch:
    body = f"independent_{direction}<{kind.name}>"
    program = f"""#include "ops/independent/independent.cuh"
PERSISTENT_KERNEL(independent, {_THREADS}, 1, 1, IndependentArguments, {body})
"""
    return nvrtc.load(program, "independent", device, _THREADS)


def _run(direction: str, parameters: Mapping[str, Any], h: Tensor, weight: Tensor, **tensors: Tensor | None) -> None:
    """Launch a direction; `tensors` are the other pointers of the structure by name."""
    steps, batch, n = h.shape
    tensors |= {"h": h, "weight": weight}
    names = ("x", "weight", "start", "h", "gradient", "final", "dx", "d_weight", "d_start", "trace")
    given = (tensors.get(name) for name in names)
    addresses = [0 if tensor is None else tensor.data_ptr() for tensor in given]
    packed = _PACKED.pack(*addresses, steps, batch, n, int(weight.dim() == 3))
    _loaded(parameters["activation"].kind, direction, h.device)(-(-batch * n // _THREADS), packed)


@kernel(independent_recurrence, "cuda")
class Independent(CompiledKernel):
    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = torch.empty_like(x)
        _run("forward", arguments.parameters, h, arguments.weight, x=x, start=arguments.state[0])
        return (h,), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,) = arguments.weight, arguments.state, tape.states
        dx, d_start = torch.empty_like(h), torch.empty_like(h0)
        d_weight = torch.empty_like(weight if weight.dim() == 3 else h0)
        trace = torch.empty_like(h) if tape.norms else None
        _run(
            "backward",
            arguments.parameters,
            h,
            weight,
            start=h0,
            gradient=tape.gradient,
            final=tape.final[0],
            dx=dx,
            d_weight=d_weight,
            d_start=d_start,
            trace=trace,
        )
        if trace is not None:
            launch.record(tape.norms[0], trace)
        return Gradients(dx, d_weight if weight.dim() == 3 else d_weight.sum(0), (d_start,))
