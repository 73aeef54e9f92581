"""The CPU kernel of the selective scan: calls of `selective.c`, in float32.

Forward keeps the state at the start of each chunk of steps. Backward makes the states of a chunk again, which stay in a
core's cache. The batch rows are split over the threads, which changes no number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import native, stopwatch, threads, workspace
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_SMALL = 1 << 16  # numbers of all states; below, starting a thread costs more than it saves


class Problem(ctypes.Structure):
    """`struct selective` of selective.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "width", "size", "rank", "negative")),
        *((name, ctypes.c_void_p) for name in ("x", "weight", "rates", "step", "bias", "start", "y", "end", "starts")),
        *((name, ctypes.c_void_p) for name in ("grad_y", "dx", "dweight", "drates", "dstep", "dbias")),
        *((name, ctypes.c_void_p) for name in ("dstart", "norms")),
    )


class Selective:
    """The kernel of `selective_scan`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,) = arguments.state
        y, end = workspace.take(*x.shape), torch.empty_like(start)
        chunks, size = -(-len(x) // native.kernels().selective_chunk()), arguments.parameters["state_size"]
        starts = workspace.take(chunks, len(start), size * native.padded(x.shape[2])) if keep else None
        _run("selective_forward", x, arguments, start=start, y=y, end=end, starts=starts)
        return (y,), (end, x, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts = tape.saved
        assert x is not None
        (start,), step_weight = arguments.state, arguments.parameters["step_weight"]
        batch, rank = x.shape[1], step_weight.shape[1]
        dx, dweight = workspace.take(*x.shape), torch.empty_like(arguments.weight)
        drates, dstep, dbias = torch.empty_like(start), x.new_zeros(batch, rank, x.shape[2]), torch.zeros_like(x[0])
        dstart = torch.zeros_like(start) if tape.final[0] is None else tape.final[0].clone()
        norms = x.new_empty(x.shape[:2]) if tape.norms else None
        gradients = {"dx": dx, "dweight": dweight, "drates": drates, "dstep": dstep, "dbias": dbias, "dstart": dstart}
        _run("selective_backward", x, arguments, starts=starts, grad_y=tape.gradient, norms=norms, **gradients)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        by_name = {
            "rates": native.total(drates),
            "step_weight": native.total(dstep).T,
            "step_bias": native.total(dbias),
        }
        return Gradients(dx, dweight, (dstart,), by_name)


def _run(function: str, x: Tensor, arguments: Arguments, **tensors: Tensor | None) -> None:
    """Run one direction over all steps, the batch rows split over the threads."""
    parameters, (steps, batch, width) = arguments.parameters, x.shape
    step = parameters["step_weight"].T.contiguous()
    tensors |= {"x": x, "weight": arguments.weight, "rates": parameters["rates"], "step": step}
    tensors["bias"] = parameters["step_bias"]
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    size, negative = parameters["state_size"], parameters["negative"]
    problem = Problem(steps, batch, width, size, len(step), negative, **pointers)
    kernel = getattr(native.kernels(), function)

    def task(first: int, last: int) -> Callable[[], None]:
        def run() -> None:
            if kernel(ctypes.byref(problem), first, last):
                raise MemoryError(function)

        return run

    parts = threads.ranges(batch, torch.get_num_threads() if x.numel() * size > _SMALL else 1)
    with stopwatch.part(stopwatch.FORWARD if function == "selective_forward" else stopwatch.BACKWARD):
        threads.run([task(*part) for part in parts])
