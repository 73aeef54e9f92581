"""The bindings of the cells of independent units: their loop (`blocks.h`), split over the threads.

They are bound by memory and compute little, so each direction is one pass over the states.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from orthobench.recurrence import threads, timing, workspace
from orthobench.recurrence.cpu import call_c
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape

_SMALL = 1 << 17  # numbers; below, starting a thread costs more than it saves


def run_blocks(function: str, states: Tensor, /, **arguments: Any) -> None:
    """Run one direction over all steps, with the blocks of units split over the threads (`blocks.h`).

    Args:
        function: its name in C, which ends in `_forward` or `_backward`.
        states: a state at every step, `[T, B, n]`.
        arguments: the function's other numbers and contiguous tensors by name, or those of its structure; None is NULL.
    """
    steps, batch, width = states.shape
    kernel = call_c.bind(function, steps=steps, batch=batch, width=width, **arguments)
    blocks = batch * -(-width // call_c.kernels().vector_length())
    ranges = threads.ranges(blocks, torch.get_num_threads() if states.numel() > _SMALL else 1)
    with timing.timed(timing.FORWARD if function.endswith("_forward") else timing.BACKWARD):
        threads.run_all([partial(kernel, *each) for each in ranges])


def record_norms(tape: Tape, gradients: Sequence[Tensor | None]) -> None:
    """Fill the tape's norms from the gradients with respect to each state, `[T, B, n]`."""
    for norms, gradient in zip(tape.norms, gradients, strict=bool(tape.norms)):
        assert gradient is not None
        torch.linalg.vector_norm(gradient, dim=-1, out=norms)


class UnitsKernel(Kernel):
    """The kernel of a cell of independent units (`units.h`), whose vectors are the operation's weight.

    Attributes:
        name: of the C functions, `{name}_forward` and `{name}_backward`.
        rereads: whether the backward pass reads x.
    """

    name: ClassVar[str]
    rereads: ClassVar[bool] = True

    @classmethod
    def variant(cls, x_width: int, arguments: Arguments) -> int:
        """Return the number of the cell's variant, given the columns of x."""
        return 0

    @classmethod
    def forward(cls, x: Tensor, arguments: Arguments, keep: bool) -> Any:
        states = tuple(workspace.take(*x.shape[:2], each.shape[-1]) for each in arguments.state)
        run_blocks(f"{cls.name}_forward", states[0], **cls._fields(x.shape[-1], states, arguments), x=x)
        return states, (x if keep and cls.rereads else None,)

    @classmethod
    def backward(cls, arguments: Arguments, tape: Tape) -> Gradients:
        (x,), weight, h = tape.saved, arguments.weight, tape.states[0]
        width = h.shape[-1] if x is None else x.shape[-1]
        dx, starts = workspace.take(*h.shape[:2], width), [torch.zeros_like(each) for each in arguments.state]
        per_step = weight.dim() == 3
        dweight = workspace.take(*weight.shape) if per_step else h.new_zeros(h.shape[1], len(weight))
        traced = [workspace.take(*h.shape) if tape.norms else None for _ in starts]
        results: dict[str, Any] = {"dx": dx, "dweight": dweight, "grad_h": tape.gradient}
        for field, values in (("dh0", starts), ("dh", traced), ("grad_last", tape.final)):
            results |= zip((field, f"{field}_2"), values, strict=False)
        run_blocks(f"{cls.name}_backward", h, **cls._fields(width, tape.states, arguments), **results, x=x)
        record_norms(tape, traced)
        return Gradients(dx, dweight if per_step else call_c.total(dweight), tuple(starts))

    @classmethod
    def _fields(cls, x_width: int, states: Sequence[Tensor], arguments: Arguments) -> dict[str, Any]:
        """Return the fields of both directions."""
        fields: dict[str, Any] = {"variant": cls.variant(x_width, arguments), "weight": arguments.weight}
        fields |= zip(("h0", "h0_2"), arguments.state, strict=False)
        fields |= zip(("h", "h_2"), states, strict=False)
        return fields
