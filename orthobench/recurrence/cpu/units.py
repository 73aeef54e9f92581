"""The CPU kernels of recurrences of independent units: calls of `minimal.c` and `oscillators.c`, in float32.

They read and write memory and compute little, as the scan does.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence.cpu import native, workspace
from orthobench.recurrence.cpu.scan import run_blocks
from orthobench.recurrence.kernels import Arguments, Gradients, Tape


class Minimal:
    """The kernel of `min_gru` and `min_lstm`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        (h0,) = arguments.state
        h = workspace.take(*x.shape[:2], h0.shape[-1])
        run_blocks("minimal_forward", h, _sizes(x, arguments), x, arguments.weight, h0, h)
        return (h,), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h0,), (h,), (x,) = arguments.state, tape.states, tape.saved
        assert x is not None
        dx, dh0 = workspace.take(*x.shape), torch.zeros_like(h0)
        dbias = x.new_zeros(x.shape[1:])
        dh = workspace.take(*h.shape) if tape.norms else None
        tensors = (x, arguments.weight, h0, h, tape.gradient, tape.final[0], dx, dbias, dh0, dh)
        run_blocks("minimal_backward", h, _sizes(x, arguments), *tensors)
        _norms(tape, dh)
        return Gradients(dx, native.total(dbias), (dh0,))


def _sizes(x: Tensor, arguments: Arguments) -> tuple[int, int]:
    return x.shape[-1] // arguments.state[0].shape[-1], bool(arguments.parameters["positive"])


class Oscillators:
    """The kernel of `oscillators`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        y, z = workspace.take(*x.shape), workspace.take(*x.shape)
        run_blocks("oscillators_forward", y, (), x, arguments.weight, *arguments.state, y, z)
        return (y, z), (x if keep else None,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (y, z), (x,) = tape.states, tape.saved
        dx, (dy0, dz0) = workspace.take(*y.shape), map(torch.zeros_like, arguments.state)
        dweight = y.new_zeros(y.shape[1], len(arguments.weight))
        dy, dz = (workspace.take(*y.shape) if tape.norms else None for _ in range(2))
        tensors = (x, arguments.weight, *arguments.state, y, z, tape.gradient, *tape.final, dx, dweight, dy0, dz0)
        run_blocks("oscillators_backward", y, (), *tensors, dy, dz)
        _norms(tape, dy, dz)
        return Gradients(dx, native.total(dweight), (dy0, dz0))


def _norms(tape: Tape, *gradients: Tensor | None) -> None:
    """Fill the tape's norms from the gradients by each state `[T, B, n]`."""
    for norms, gradient in zip(tape.norms, gradients, strict=bool(tape.norms)):
        assert gradient is not None
        torch.linalg.vector_norm(gradient, dim=-1, out=norms)
