"""The CPU kernel of the delta rule: calls of `delta.c`, in float32.

Forward keeps the errors that the memory was corrected by, and the memory at the start of each chunk of steps. Backward
makes the memories of a chunk again, which stay in a core's cache. The heads of all batch rows are split over the
threads, which changes no number.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import native, stopwatch, threads, workspace
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_SMALL = 1 << 20  # multiplications; below, starting a thread costs more than it saves
_CACHED = 1 << 16  # numbers of a chunk's memories
_LONGEST = 64  # steps of a chunk


class Problem(ctypes.Structure):
    """`struct delta` of delta.c."""

    _fields_ = (
        *((name, ctypes.c_int64) for name in ("steps", "batch", "heads", "keys", "values", "factors", "chunk")),
        ("normalized", ctypes.c_int64),
        ("epsilon", ctypes.c_float),
        *((name, ctypes.c_void_p) for name in ("x", "beta", "decay", "start", "y", "errors", "starts", "end")),
        *((name, ctypes.c_void_p) for name in ("grad_y", "grad_end", "dx", "dbeta", "dlog_decay", "dstart", "norms")),
    )


class Delta:
    """The kernel of `delta_rule`."""

    forgets_states = True

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (start,), sizes = arguments.state, _sizes(x, arguments)
        steps, batch = x.shape[:2]
        beta, decay = _coefficients(arguments)
        heads = sizes["heads"] * sizes["values"]
        y, end = workspace.take(steps, batch, heads), torch.empty_like(start)
        errors = workspace.take(steps, batch, sizes["factors"] * heads) if keep else None
        starts = workspace.take(-(-steps // sizes["chunk"]), *start.shape) if keep else None
        tensors = {"x": x, "beta": beta, "decay": decay, "start": start, "y": y, "end": end}
        _run("delta_forward", sizes, {**tensors, "errors": errors, "starts": starts})
        return (y,), (end, x, errors, starts)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        _, x, errors, starts = tape.saved
        assert x is not None
        (start,), sizes = arguments.state, _sizes(x, arguments)
        beta, decay = _coefficients(arguments)
        dx, dbeta, dstart = workspace.take(*x.shape), torch.empty_like(beta), torch.empty_like(start)
        by_decay = None if decay is None else torch.empty_like(decay)
        norms = x.new_empty(*x.shape[:2], sizes["heads"]) if tape.norms else None
        tensors = {"x": x, "beta": beta, "decay": decay, "errors": errors, "starts": starts, "dx": dx, "dbeta": dbeta}
        tensors |= {"grad_y": tape.gradient, "grad_end": tape.final[0], "dstart": dstart}
        _run("delta_backward", sizes, {**tensors, "dlog_decay": by_decay, "norms": norms})
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms.sum(-1), out=out)
        return Gradients(dx, dbeta if by_decay is None else torch.cat((dbeta, by_decay), dim=-1), (dstart,))


def _sizes(x: Tensor, arguments: Arguments) -> dict[str, Any]:
    """Return the numbers of the problem."""
    parameters, features = arguments.parameters, arguments.state[0].shape[1]
    heads, keys, factors = (parameters[name] for name in ("heads", "key_size", "factors"))
    chunk = max(1, min(_LONGEST, _CACHED * heads // (features * factors)))
    epsilon = parameters["epsilon"]
    return {
        **{"steps": x.shape[0], "batch": x.shape[1], "heads": heads, "keys": keys, "factors": factors, "chunk": chunk},
        **{"values": features // (heads * keys), "normalized": epsilon is not None, "epsilon": epsilon or 0.0},
    }


def _coefficients(arguments: Arguments) -> tuple[Tensor, Tensor | None]:
    """Return the betas `[T, B, factors * heads]` and the decays `[T, B, heads]`."""
    if not arguments.parameters["gated"]:
        return arguments.weight, None
    count = arguments.parameters["heads"] * arguments.parameters["factors"]
    return arguments.weight[..., :count].contiguous(), arguments.weight[..., count:].exp()


def _run(function: str, sizes: dict[str, Any], tensors: dict[str, Tensor | None]) -> None:
    """Run one direction over all steps, the heads of all rows split over the threads."""
    pointers = {name: tensor.data_ptr() for name, tensor in tensors.items() if tensor is not None}
    problem, kernel = Problem(**sizes, **pointers), getattr(native.kernels(), function)

    def task(first: int, last: int) -> Callable[[], None]:
        def run() -> None:
            if kernel(ctypes.byref(problem), first, last):
                raise MemoryError(function)

        return run

    units = sizes["batch"] * sizes["heads"]
    work = sizes["steps"] * units * sizes["keys"] * sizes["values"] * sizes["factors"]
    parts = threads.ranges(units, torch.get_num_threads() if work > _SMALL else 1)
    with stopwatch.part(stopwatch.FORWARD if function == "delta_forward" else stopwatch.BACKWARD):
        threads.run([task(*part) for part in parts])
