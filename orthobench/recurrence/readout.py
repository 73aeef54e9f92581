"""The output map y_t = V h_t + c of a recurrence's states, which the loops compute in value and gradient.

As a separate product, dL/dh, which is as large as all states, would be written to memory and read again. The backward
loop instead computes it step by step as one more product, and dL/dV while the states are in the cache. The forward loop
computes y along with its states. The map therefore has to be announced before the recurrence runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor

from orthobench.recurrence import kernels, stopwatch
from orthobench.recurrence.cpu import native
from orthobench.recurrence.projection import project

Read = Callable[[Tensor], Tensor]
"""A function of features h `[..., n]` that returns y = V h + c, as `torch.nn.functional.linear`."""


@contextmanager
def reading(weight: Tensor, bias: Tensor, in_loop: bool = True) -> Iterator[Read]:
    """Yield the function that maps features h to y = V h + c, to be called after the block.

    If the features are the outputs of all steps of a C recurrence in the block that projects its inputs, its loop has
    computed y. The gradient then goes from y directly to the recurrence's arguments, so a hook on the outputs does not
    see it.

    Args:
        weight: V `[p, n]`.
        bias: c `[p]`.
        in_loop: whether the features will be such outputs. If not, a loop would compute y in vain.
    """
    output_map = kernels.OutputMap(weight, bias)

    def read(features: Tensor) -> Tensor:
        if output_map.y is not None and features is output_map.outputs:
            return output_map.y
        return project(features, weight, bias, part=stopwatch.READOUT)

    is_in_c = in_loop and torch.is_grad_enabled() and native.serves("readout", "p n, p", weight, bias)
    with kernels.expect(output_map if is_in_c else None):
        yield read


def unread() -> AbstractContextManager[None]:
    """Return the context of recurrences whose outputs no output map reads."""
    return kernels.expect(None)
