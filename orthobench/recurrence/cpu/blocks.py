"""Run the loop over independent units (`blocks.h`), split over the threads."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import native
from orthobench.recurrence.kernels import Tape

_SMALL = 1 << 17  # numbers; below, starting a thread costs more than it saves


def run_blocks(function: str, states: Tensor, /, **arguments: Any) -> None:
    """Run one direction over all steps, with the blocks of units split over the threads (`blocks.h`).

    Args:
        function: its name in C, which ends in `_forward` or `_backward`.
        states: a state at every step, `[T, B, n]`.
        arguments: the function's other numbers and contiguous tensors by name; None is NULL.
    """
    steps, batch, width = states.shape
    kernel = native.bind(function, steps=steps, batch=batch, width=width, **arguments)
    blocks = batch * -(-width // native.kernels().vector_length())
    parts = runtime.ranges(blocks, torch.get_num_threads() if states.numel() > _SMALL else 1)
    with runtime.part(runtime.FORWARD if function.endswith("_forward") else runtime.BACKWARD):
        runtime.run_all([partial(kernel, *part) for part in parts])


def record_norms(tape: Tape, gradients: Sequence[Tensor | None]) -> None:
    """Fill the tape's norms from the gradients with respect to each state, `[T, B, n]`."""
    for norms, gradient in zip(tape.norms, gradients, strict=bool(tape.norms)):
        assert gradient is not None
        torch.linalg.vector_norm(gradient, dim=-1, out=norms)
