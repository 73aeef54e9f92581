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
        *((name, ctypes.c_int64) for name in ("steps", "batch", "width", "size", "rank", "negative", "groups")),
        *((name, ctypes.c_void_p) for name in ("x", "map", "rates", "step", "bias", "start")),
        *((name, ctypes.c_void_p) for name in ("weight", "y", "end", "starts")),
        *((name, ctypes.c_void_p) for name in ("grad_y", "dx", "dweight", "dmap", "drates", "dstep", "dbias")),
        *((name, ctypes.c_void_p) for name in ("dstart", "norms")),
    )


class Selective:
    """The kernel of `selective_scan`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,) = arguments.state
        y, end = workspace.take(*x.shape), torch.empty_like(start)
        length = native.kernels().selective_starts(*x.shape, arguments.parameters["state_size"])
        starts = workspace.take(length) if keep else None
        mapped = workspace.take(*x.shape[:2], len(arguments.weight)) if arguments.weight.dim() == 2 else None
        _run("selective_forward", x, arguments, mapped, start=start, y=y, end=end, starts=starts)
        return (y,), (end, x, starts, mapped)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, starts, mapped = tape.saved
        assert x is not None
        (start,), step_weight = arguments.state, arguments.parameters["step_weight"]
        groups, width = native.row_groups(x.shape[1]), x.shape[2]
        dx, dweight, dmap = workspace.take(*x.shape), None, None
        if mapped is None:
            dweight = workspace.take(*arguments.weight.shape)
        else:
            dmap = x.new_zeros(groups, len(arguments.weight), native.padded(width))
        drates, dbias = x.new_empty(groups, start.shape[1]), x.new_empty(groups, width)
        dstep = x.new_empty(groups, step_weight.shape[1], width)
        dstart = torch.zeros_like(start) if tape.final[0] is None else tape.final[0].clone()
        norms = x.new_empty(x.shape[:2]) if tape.norms else None
        gradients = {"dx": dx, "dweight": dweight, "dmap": dmap, "drates": drates, "dstep": dstep, "dbias": dbias}
        tensors = {"starts": starts, "grad_y": tape.gradient, "norms": norms, "dstart": dstart}
        _run("selective_backward", x, arguments, mapped, **tensors, **gradients)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        by_name = {
            "rates": native.total(drates),
            "step_weight": native.total(dstep).T,
            "step_bias": native.total(dbias),
        }
        return Gradients(dx, dweight if dmap is None else native.total(dmap)[:, :width], (dstart,), by_name)


def _run(function: str, x: Tensor, arguments: Arguments, mapped: Tensor | None, **tensors: Tensor | None) -> None:
    """Run one direction over all steps, the groups of batch rows split over the threads.

    `mapped` has the weights of all steps, `[T, B, rank + 2N]`, if the argument is the map that makes them.
    """
    parameters, (steps, batch, width) = arguments.parameters, x.shape
    step = parameters["step_weight"].T.contiguous()
    tensors |= {"x": x, "rates": parameters["rates"], "step": step}
    tensors |= {"weight": arguments.weight} if mapped is None else {"weight": mapped, "map": arguments.weight}
    tensors["bias"] = parameters["step_bias"]
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    size, negative = parameters["state_size"], parameters["negative"]
    groups = native.row_groups(batch)
    problem = Problem(steps, batch, width, size, len(step), negative, groups, **pointers)
    kernel = getattr(native.kernels(), function)

    def task(first: int, last: int) -> Callable[[], None]:
        def run() -> None:
            if kernel(ctypes.byref(problem), first, last):
                raise MemoryError(function)

        return run

    parts = threads.ranges(groups, torch.get_num_threads() if x.numel() * size > _SMALL else 1)
    with stopwatch.part(stopwatch.FORWARD if function == "selective_forward" else stopwatch.BACKWARD):
        threads.run([task(*part) for part in parts])
