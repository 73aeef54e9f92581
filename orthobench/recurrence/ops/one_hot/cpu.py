"""The CPU kernel of PD-SSM's recurrence: calls of `one_hot.c`, in float32.

Forward keeps the places of the ones, and backward computes the matrices again. The rows of the batch are divided into
groups by their number alone, so results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from orthobench.recurrence import runtime
from orthobench.recurrence.cpu import native
from orthobench.recurrence.kernels import Arguments, Gradients, Kernel, Tape, kernel
from orthobench.recurrence.ops.one_hot import one_hot_recurrence

_GROUPS, _ROWS = 8, 4
_SMALL = 1 << 20  # multiplications; below, starting a thread costs more than it saves


@kernel(one_hot_recurrence, "cpu")
class OneHot(Kernel):
    """The kernel of `one_hot_recurrence`."""

    @staticmethod
    def forward(x: Tensor, arguments: Arguments, keep: bool) -> Any:
        h, chosen = runtime.take(*x.shape), runtime.take(*x.shape[:2], x.shape[2] // 2)
        _run("one_hot_forward", arguments, x=x, h=h, chosen=chosen)
        return (h,), (chosen,)

    @staticmethod
    def backward(arguments: Arguments, tape: Tape) -> Gradients:
        (h,), (chosen,), dictionary = tape.states, tape.saved, arguments.parameters["dictionary"]
        dx, dweight, dstart = runtime.take(*h.shape), torch.empty_like(arguments.weight), torch.empty_like(h[0])
        by_group = h.new_zeros(_groups(h.shape[1]), *dictionary.shape)
        norms = h.new_empty(h.shape[:2]) if tape.norms else None
        arriving = {"grad_h": tape.gradient, "grad_last": tape.final[0], "norms": norms}
        gradients = {"dx": dx, "dweight": dweight, "dstart": dstart, "ddictionary": by_group}
        _run("one_hot_backward", arguments, h=h, chosen=chosen, **arriving, **gradients)
        for out in tape.norms:
            assert norms is not None
            torch.sqrt(norms, out=out)
        return Gradients(dx, dweight, (dstart,), {"dictionary": native.total(by_group)})


def _groups(rows: int) -> int:
    return min(_GROUPS, -(-rows // _ROWS))


def _run(function: str, arguments: Arguments, **tensors: Tensor | None) -> None:
    """Run one direction over all steps, with the groups of rows split over the threads."""
    h, dictionary, (start,) = tensors["h"], arguments.parameters["dictionary"], arguments.state
    assert h is not None
    steps, batch, groups = *h.shape[:2], _groups(h.shape[1])
    sizes = {"steps": steps, "batch": batch, "units": h.shape[2] // 2, "matrices": len(dictionary), "groups": groups}
    tensors |= {"weight": arguments.weight, "dictionary": dictionary, "start": start}
    parts = runtime.ranges(groups, torch.get_num_threads() if steps * batch * dictionary.numel() > _SMALL else 1)
    native.run_parts(function, parts, **sizes, **tensors)
