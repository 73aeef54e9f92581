"""The back end that differentiates the declared steps by autograd: in any float type, on any device.

All other back ends are tested against it, in value and in gradient.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from orthobench.recurrence.call import Call, Result, State


def unsupported(call: Call) -> str | None:
    """Return None: this back end serves every call."""
    return None


def unusable(call: Call) -> str | None:
    """Return None: this back end needs no kernels."""
    return None


def run(call: Call) -> Result:
    """Run all steps.

    A weight that is applied (FFTs, rotations) would keep tens of tensors of the state's size at each step. Only the
    states of such a recurrence are kept; the backward pass computes the steps again, a piece of the sequence at a time.
    """
    assert isinstance(call.x, Tensor)
    if isinstance(call.weight, Tensor) or call.trace is not None or not torch.is_grad_enabled():
        return _loop(call, call.x, *call.state)
    outputs, state = [], call.state
    for piece in call.x.split(math.isqrt(len(call.x))):
        states, state = checkpoint(_loop, call, piece, *state, use_reentrant=False)
        outputs.append(states)
    return torch.cat(outputs), state


def _loop(call: Call, x: Tensor, *state: Tensor) -> Result:
    states: list[State] = []
    # indexing x would make autograd write a zero tensor of x's size at each step
    for x_t, step in zip(x.unbind(0), _steps(call), strict=False):
        state = step(x_t, *state)
        states.append(state)
    if call.trace is not None:
        for name, tensors in zip(call.operation.traced_states, zip(*states, strict=True), strict=True):
            call.trace.watch(name, tensors)
    return torch.stack([first for first, *_ in states]), state


def _steps(call: Call) -> Iterator[Callable[..., State]]:
    """Yield the step of each time: the same one without end, or one for each diagonal of a weight `[T, B, n]`."""
    make = functools.partial(call.operation.step, **call.parameters)
    if call.operation.diagonal and isinstance(call.weight, Tensor) and call.weight.dim() == 3:
        return map(make, call.weight.unbind(0))
    return itertools.repeat(make(call.weight))
