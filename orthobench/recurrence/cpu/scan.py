"""The CPU kernel of the diagonal recurrence: calls of `scan.c`, in float32.

It reads and writes memory and computes little, so each direction is one pass over the states. The features of all
batch rows are split over the threads, which changes no number.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import stopwatch
from orthobench.recurrence.cpu import native, threads, workspace
from orthobench.recurrence.kernels import Arguments, Gradients, Tape

_SMALL = 1 << 17  # numbers; below, starting a thread costs more than it saves


class Scan:
    """The kernel of `diagonal_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h = workspace.take(*x.shape)
        _run("scan_forward", h, arguments, x, arguments.weight, arguments.state[0], _latest(h), h)
        return (h,), ()

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        weight, (h0,), (h,) = arguments.weight, arguments.state, tape.states
        per_step = weight.dim() == 3
        dx, dh0, da = workspace.take(*h.shape), torch.empty_like(h0), None
        if tape.needs_weight:
            da = workspace.take(*h.shape) if per_step else torch.zeros_like(h0)
        _run("scan_backward", h, arguments, weight, h0, h, tape.gradient, tape.final[0], _latest(h), dx, da, dh0)
        for norms in tape.norms:
            torch.linalg.vector_norm(dx, dim=-1, out=norms)
        return Gradients(dx, da if per_step or da is None else native.total(da), (dh0,))


def _latest(h: Tensor) -> Tensor:
    """Return memory for the last step's result, in blocks of whole vectors."""
    return h.new_empty(h.shape[1], native.padded(h.shape[2]))


def _run(function: str, h: Tensor, arguments: Arguments, *tensors: Tensor | None) -> None:
    run_blocks(function, h, (arguments.parameters["is_complex"], arguments.weight.dim() == 3), *tensors)


def run_blocks(function: str, h: Tensor, sizes: tuple[int, ...], *tensors: Tensor | None) -> None:
    """Run one direction over all steps, the blocks of units split over the threads (`blocks.h`).

    Args:
        function: its name in C, which ends in `_forward` or `_backward`.
        h: a state at every step, `[T, B, n]`.
        sizes: the function's numbers after T, B and n.
        tensors: its contiguous tensors; NULL for None.
    """
    steps, batch, width = h.shape
    kernel = getattr(native.kernels(), function)
    pointers = [native.pointer(tensor) for tensor in tensors]

    def task(first: int, last: int) -> Callable[[], None]:
        return lambda: kernel(first, last, steps, batch, width, *sizes, *pointers)

    blocks = batch * -(-width // native.kernels().vector_length())
    parts = threads.ranges(blocks, torch.get_num_threads() if h.numel() > _SMALL else 1)
    with stopwatch.part(stopwatch.FORWARD if function.endswith("_forward") else stopwatch.BACKWARD):
        threads.run([task(*part) for part in parts])
